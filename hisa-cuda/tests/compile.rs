//! Every kernel compiles for every architecture, and its machine code has the matrix instructions
//! of its declared arithmetic and no others. Needs NVRTC and nvdisasm, and no GPU.
//!
//! Where either is missing, tests say so and pass; `HISA_REQUIRE_NVRTC=1` makes them fail instead.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use hisa_cuda::Error;
use hisa_cuda::kernel::{Entry, Unit};
use hisa_cuda::toolchain::search::{Environment, package_folders};
use hisa_cuda::toolchain::{Arch, Cache, Compiler, Nvrtc, Source};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

/// The compiler, or none and a line that says why.
fn nvrtc() -> Option<Nvrtc> {
    found("NVRTC", Nvrtc::load().map_err(|error| error.to_string()))
}

/// The disassembler: `HISA_NVDISASM`, or on `PATH`, or in the Python packages.
fn nvdisasm() -> Option<PathBuf> {
    let environment = Environment::of_process();
    let named = std::env::var_os("HISA_NVDISASM").filter(|value| !value.is_empty());
    let mut folders: Vec<PathBuf> = environment
        .path
        .iter()
        .flat_map(std::env::split_paths)
        .collect();
    folders.extend(package_folders(&environment, "bin"));
    let tool = match named {
        Some(file) => Some(PathBuf::from(file)).filter(|file| file.is_file()),
        None => folders
            .into_iter()
            .map(|folder| folder.join("nvdisasm"))
            .find(|file| file.is_file()),
    };
    found("nvdisasm", tool.ok_or_else(|| "not found".to_owned()))
}

fn found<T>(what: &str, tool: Result<T, String>) -> Option<T> {
    let required = std::env::var_os("HISA_REQUIRE_NVRTC").is_some_and(|value| !value.is_empty());
    match tool {
        Ok(tool) => Some(tool),
        Err(reason) if required => panic!("{what} is required: {reason}"),
        Err(reason) => {
            eprintln!("SKIPPED: {what}: {reason}");
            None
        }
    }
}

fn compiler() -> Option<Compiler> {
    Some(Compiler::with(nvrtc()?, Cache::off()))
}

/// Opcodes of each kernel of a cubin, in order.
fn disassemble(nvdisasm: &PathBuf, cubin: &[u8]) -> BTreeMap<String, Vec<String>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), cubin).unwrap();
    let output = Command::new(nvdisasm)
        .arg("-c")
        .arg(file.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nvdisasm: {complaint}");
    opcodes(&text)
}

fn opcodes(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut kernels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix(".text.") {
            let name = name.trim_end_matches(':');
            current = Some(kernels.entry(name.to_owned()).or_default());
        } else if let (Some(kernel), Some(opcode)) = (&mut current, opcode(line)) {
            kernel.push(opcode.to_owned());
        }
    }
    kernels
}

/// `HMMA.16816.F32` of `/*0a10*/ @!P0 HMMA.16816.F32 R4, R8, R6, R4 ;`.
fn opcode(line: &str) -> Option<&str> {
    let (_, instruction) = line.trim().strip_prefix("/*")?.split_once("*/")?;
    instruction
        .split_whitespace()
        .find(|word| !word.starts_with('@') && *word != "{")
        .map(|word| word.trim_end_matches(';'))
}

/// `HMMA`, `DMMA`, `HGMMA`, `UTCHMMA`, but not `HFMA2.MMA`, which moves constants.
fn is_matrix(opcode: &str) -> bool {
    let stem = opcode.split('.').next();
    stem.is_some_and(|stem| stem.ends_with("MMA"))
}

/// What is wrong with the machine code of a unit: kernels that are missing or not in the table,
/// and matrix instructions that are.
fn problems(entries: &[Entry], kernels: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut problems = Vec::new();
    for name in kernels.keys() {
        if !entries.iter().any(|entry| entry.name == name) {
            problems.push(format!("{name} is not in the table of kernels"));
        }
    }
    for entry in entries {
        let name = entry.name;
        let Some(opcodes) = kernels.get(name) else {
            problems.push(format!("{name} is missing"));
            continue;
        };
        let declared = |opcode: &str| entry.opcodes.iter().any(|start| opcode.starts_with(start));
        let mut others = opcodes.iter().filter(|opcode| is_matrix(opcode));
        if let Some(other) = others.find(|opcode| !declared(opcode)) {
            problems.push(format!("{name} has {other}"));
        }
        for start in entry.opcodes {
            if !opcodes.iter().any(|opcode| opcode.starts_with(start)) {
                problems.push(format!("{name} has no {start}"));
            }
        }
        if !opcodes.iter().any(|opcode| opcode.starts_with("EXIT")) {
            problems.push(format!(
                "{name} has no end: the disassembly was not understood"
            ));
        }
    }
    problems
}

/// What is wrong with a unit on an architecture.
fn check(compiler: &Compiler, nvdisasm: &PathBuf, unit: Unit, arch: Arch) -> Vec<String> {
    let cubin = match compiler.cubin(&Source::of(unit), arch) {
        Ok(cubin) => cubin,
        Err(error) => return vec![format!("{arch}: {error}")],
    };
    assert_eq!(&cubin[..4], b"\x7fELF");
    let found = problems(unit.entries(), &disassemble(nvdisasm, &cubin));
    let found = found.into_iter();
    found
        .map(|problem| format!("{} {arch}: {problem}", unit.file()))
        .collect()
}

#[test]
fn kernels_compile_everywhere_to_the_declared_instructions() {
    let (Some(compiler), Some(nvdisasm)) = (compiler(), nvdisasm()) else {
        return;
    };
    let jobs = Unit::ALL.map(|unit| Arch::CI.map(|arch| (unit, arch)));
    let jobs = Mutex::new(jobs.concat());
    let problems = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let job = jobs.lock().unwrap().pop();
                    let Some((unit, arch)) = job else { break };
                    let found = check(&compiler, &nvdisasm, unit, arch);
                    problems.lock().unwrap().extend(found);
                }
            });
        }
    });
    let problems = problems.into_inner().unwrap();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// A unit of one kernel that does f16 products where `mma`.
fn small(mma: bool) -> Source {
    let body = if mma {
        "asm(\"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 \"\n\
         \"{%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};\"\n\
         : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) : \"r\"(threadIdx.x));"
    } else {
        "c[0] += 1;"
    };
    Source {
        file: "small.cu".to_owned(),
        text: format!(
            "extern \"C\" __global__ void small(float* p) {{\n\
             float c[4] = {{p[0], p[1], p[2], p[3]}};\n{body}\n\
             for (int i = 0; i < 4; ++i) p[i] = c[i];\n}}\n"
        ),
        headers: Vec::new(),
    }
}

#[test]
fn instructions_are_told_apart() {
    let (Some(compiler), Some(nvdisasm)) = (compiler(), nvdisasm()) else {
        return;
    };
    let plain = Entry {
        name: "small",
        opcodes: &[],
    };
    let f16 = Entry {
        name: "small",
        opcodes: &["HMMA.16816.F32"],
    };
    for arch in Arch::CI {
        let kernels = |mma| {
            let cubin = compiler.cubin(&small(mma), arch).unwrap();
            disassemble(&nvdisasm, &cubin)
        };
        let (without, with) = (kernels(false), kernels(true));
        assert!(problems(&[plain], &without).is_empty(), "{arch}");
        assert!(problems(&[f16], &with).is_empty(), "{arch}: {with:?}");
        let missing = problems(&[f16], &without);
        assert_eq!(missing, ["small has no HMMA.16816.F32"], "{arch}");
        let extra = problems(&[plain], &with);
        assert_eq!(extra, ["small has HMMA.16816.F32"], "{arch}");
        let unknown = problems(&[], &with);
        assert_eq!(unknown, ["small is not in the table of kernels"], "{arch}");
        let other = Entry {
            name: "other",
            opcodes: &[],
        };
        assert!(problems(&[other], &with).contains(&"other is missing".to_owned()));
    }
}

#[test]
fn disassembly_is_read_line_by_line() {
    let text = "\t.section\t.text.f,\"ax\",@progbits\n.text.f:\n\
        \x20       /*0000*/                   MOV R1, c[0x0][0x28] ;\n\
        .L_x_1:\n        /*0010*/              @!P0 HMMA.16816.F32 R4, R8, R6, R4 ;\n\
        \x20       /*0020*/                   EXIT ;\n";
    let kernels = opcodes(text);
    assert_eq!(kernels.len(), 1);
    assert_eq!(kernels["f"], ["MOV", "HMMA.16816.F32", "EXIT"]);
    for opcode in [
        "HMMA.16816.F32",
        "DMMA.8x8x4",
        "HGMMA.64x8x16.F32",
        "UTCHMMA",
    ] {
        assert!(is_matrix(opcode), "{opcode}");
    }
    assert!(!is_matrix("HFMA2.MMA"));
}

#[test]
fn a_source_that_does_not_compile_gives_log_and_options() {
    let Some(compiler) = compiler() else { return };
    let mut source = small(false);
    source.text.push_str("int f() { return wrong; }\n");
    let error = compiler.cubin(&source, Arch::CI[2]).unwrap_err();
    let Error::Compile { unit, options, log } = error else {
        panic!("{error:?}");
    };
    assert_eq!(unit, "small.cu");
    assert!(log.contains("small.cu(6): error"), "{log}");
    assert!(log.contains("\"wrong\" is undefined"), "{log}");
    assert!(options.contains(&"--gpu-architecture=sm_90a".to_owned()));
    source.text = "a\0b".to_owned();
    let error = compiler.cubin(&source, Arch::CI[0]).unwrap_err();
    assert!(error.to_string().contains("NUL at byte 1"), "{error}");
}

#[test]
fn headers_come_from_memory_alone() {
    let Some(compiler) = compiler() else { return };
    let mut source = small(false);
    source
        .text
        .insert_str(0, "#include \"src/kernels/common/types.cuh\"\n");
    // The test runs in the folder that has this file.
    assert!(std::path::Path::new("src/kernels/common/types.cuh").is_file());
    let error = compiler.cubin(&source, Arch::CI[0]).unwrap_err();
    assert!(
        error.to_string().contains("could not open source file"),
        "{error}"
    );
    let header = ("src/kernels/common/types.cuh".to_owned(), String::new());
    source.headers.push(header);
    assert!(compiler.cubin(&source, Arch::CI[0]).is_ok());
}

#[test]
fn a_cached_cubin_is_the_compiled_one() {
    let Some(nvrtc) = nvrtc() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::in_folder(folder.path().to_owned());
    let compiler = Compiler::with(nvrtc, cache);
    let arch = Arch::CI[0];
    let first = compiler.cubin(&small(false), arch).unwrap();
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files(), 1);
    assert_eq!(compiler.cubin(&small(false), arch).unwrap(), first);
    assert_eq!(files(), 1);
    compiler.cubin(&small(true), arch).unwrap();
    compiler.cubin(&small(false), Arch::CI[1]).unwrap();
    assert_eq!(files(), 3);
}
