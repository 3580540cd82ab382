// The flat indexer, dsa (SPEC 9.2).
#include "common/flat_topk.cuh"
