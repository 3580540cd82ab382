"""What ports that hold torch tensors share: the device, transfers, and how a broken one ends."""

import importlib.util
import os
import sys

for library in ("torch", "numpy"):
    if importlib.util.find_spec(library) is None:
        sys.exit(f"{library} is missing: pip install {library}")


def load(name):
    """torch and the device by that name; ends the process with one line where there is none."""
    import torch

    if name.startswith("cuda") and not torch.cuda.is_available():
        sys.exit(f"no GPU: torch {torch.__version__} sees none")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_grad_enabled(False)
    if name == "cpu":
        torch.set_num_threads(1)  # several ports run beside one another
    return torch, torch.device(name)


def load_hopper(what):
    """As `load`, and a GPU of the generation whose arithmetic is declared."""
    torch, device = load("cuda")
    major, minor = torch.cuda.get_device_capability(device)
    if major != 9:
        name = torch.cuda.get_device_name(device)
        sys.exit(f"{what} is declared for sm_90 only; {name} is sm_{major}{minor}")
    return torch, device


class Transfers:
    """Tensors to a device and back."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device

    def put(self, inputs, *names):
        """The named tensors on the device, in the dtypes of the protocol."""
        return [self.torch.from_numpy(inputs[name]).to(self.device) for name in names]

    def take(self, **tensors):
        """Outputs on the host; int64 becomes int32."""
        return {name: self._host(tensor) for name, tensor in tensors.items()}

    def _host(self, tensor):
        if tensor.dtype == self.torch.int64:
            tensor = tensor.int()
        return tensor.contiguous().cpu().numpy()

    def leave(self, out):
        """Memory of the sizes of the outputs, with their fill, given back: what a kernel's own
        allocation finds there is then not by chance what it should write (SPEC 10.11)."""
        del self.put(out, *out)[:]

    def guarded(self, functions):
        """The functions, with the process ended by a device fault: after one every later call
        fails, and the next process is clean."""
        if self.device.type != "cuda":
            return functions
        return {stage: self._guarded(function) for stage, function in functions.items()}

    def _guarded(self, function):
        def call(inputs, params, out):
            try:
                made = function(inputs, params, out)
                self.torch.cuda.synchronize()
                return made
            except Exception:
                self._end_if_broken()
                raise

        return call

    def _end_if_broken(self):
        try:
            self.torch.cuda.synchronize()
        except Exception as error:
            print(f"the device is lost: {error}", file=sys.stderr, flush=True)
            os._exit(70)
