//! Against small C libraries that stand for NVRTC; the real one is used by `tests/compile.rs`.

use super::*;
use crate::toolchain::stub;

/// An NVRTC of this version. What the text of a unit says decides what it does with it; `alive`
/// counts programs.
fn code(version: (u32, u32)) -> String {
    let (major, minor) = version;
    format!(
        r#"
#include <string.h>
#include <stddef.h>
int alive = 0;
int nvrtcVersion(int* major, int* minor) {{ *major = {major}; *minor = {minor}; return 0; }}
const char* nvrtcGetErrorString(int status) {{ return status == 6 ? "COMPILATION" : "OTHER"; }}
int nvrtcCreateProgram(void** program, const char* text, const char* name, int headers,
                       const char* const* texts, const char* const* names) {{
    if (strcmp(text, "refuse") == 0) return 3;
    alive++;
    *program = strcmp(text, "wrong") == 0 ? (void*)1 : strcmp(text, "void") == 0 ? (void*)3
             : (headers == 1 && strcmp(names[0], "h") == 0 && strcmp(texts[0], "t") == 0)
             ? (void*)4 : (void*)2;
    return 0;
}}
int nvrtcDestroyProgram(void** program) {{ alive--; *program = 0; return 0; }}
int nvrtcCompileProgram(void* program, int options, const char* const* values) {{
    if (options != 8 || strcmp(values[0], "--gpu-architecture=sm_80") != 0) return 5;
    return program == (void*)1 ? 6 : 0;
}}
int nvrtcGetCUBINSize(void* program, size_t* size) {{
    *size = program == (void*)3 ? 0 : 3;
    return 0;
}}
int nvrtcGetCUBIN(void* program, char* bytes) {{
    memcpy(bytes, program == (void*)4 ? "hdr" : "bin", 3);
    return 0;
}}
int nvrtcGetProgramLogSize(void* program, size_t* size) {{ *size = 5; return 0; }}
int nvrtcGetProgramLog(void* program, char* bytes) {{ memcpy(bytes, "bad\n", 5); return 0; }}
"#
    )
}

fn source(text: &str) -> Source {
    Source {
        file: "a.cu".to_owned(),
        text: text.to_owned(),
        headers: Vec::new(),
    }
}

/// Programs of this library that were made and not destroyed.
fn alive(file: &Path) -> c_int {
    let library = open_global(file).unwrap();
    // SAFETY: the library defines an integer of this name.
    unsafe { **library.get::<*const c_int>("alive").unwrap() }
}

#[test]
fn programs_are_destroyed_whatever_happens() {
    let folder = tempfile::tempdir().unwrap();
    let Some(file) = stub::library(folder.path(), "libnvrtc.so.13", &code((13, 0))) else {
        return;
    };
    let nvrtc = Nvrtc::open(&file).unwrap();
    assert_eq!(nvrtc.version(), (13, 0));
    assert_eq!(nvrtc.bytes(), std::fs::metadata(&file).unwrap().len());
    let arch = Arch::CI[0];
    assert_eq!(nvrtc.compile(&source("right"), arch).unwrap(), b"bin");
    let mut with_header = source("right");
    with_header.headers = vec![("h".to_owned(), "t".to_owned())];
    assert_eq!(nvrtc.compile(&with_header, arch).unwrap(), b"hdr");
    let Err(Error::Compile { unit, options, log }) = nvrtc.compile(&source("wrong"), arch) else {
        panic!("compiled");
    };
    assert_eq!((unit.as_str(), log.as_str()), ("a.cu", "COMPILATION\nbad"));
    assert_eq!(options, super::options(arch));
    for (text, message) in [
        ("refuse", "nvrtcCreateProgram failed: OTHER"),
        ("void", "nvrtcGetCUBINSize failed: there is no machine code"),
        (
            "nul\0",
            "nvrtcCreateProgram failed: a.cu holds a NUL at byte 3",
        ),
    ] {
        let error = nvrtc.compile(&source(text), arch).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(alive(&file), 0);
}

#[test]
fn what_cannot_be_used_is_passed_over_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let build = |name: &str, code: &str| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        stub::library(&folder, "libnvrtc.so", code)
    };
    let Some(old) = build("old", &code((12, 3))) else {
        return;
    };
    let partial = code((13, 0)).replace("nvrtcGetCUBINSize", "nvrtcGetCubinSize");
    let partial = build("partial", &partial).unwrap();
    let good = build("good", &code((12, 4))).unwrap();
    let text = folder.path().join("text/libnvrtc.so");
    std::fs::create_dir(text.parent().unwrap()).unwrap();
    std::fs::write(&text, b"no library").unwrap();

    let bare = PathBuf::from("libabsent-nvrtc.so");
    let mut candidates = Candidates {
        libraries: vec![old.clone(), partial.clone(), text.clone(), bare],
        searched: vec![folder.path().to_owned()],
    };
    let Err(Error::NoNvrtc { searched, refused }) = Nvrtc::first_of(&candidates) else {
        panic!("loaded");
    };
    assert_eq!(searched, candidates.searched);
    let [first, second, third] = refused.as_slice() else {
        panic!("{refused:?}");
    };
    let (library, major, minor) = (old, 12, 3);
    assert_eq!(
        first,
        &Error::NvrtcTooOld {
            library,
            major,
            minor
        }
    );
    let (symbol, library) = ("nvrtcGetCUBINSize", partial);
    assert_eq!(second, &Error::NvrtcSymbol { symbol, library });
    assert!(matches!(third, Error::Library { library, .. } if *library == text));

    candidates.libraries.push(good.clone());
    let loaded = Nvrtc::first_of(&candidates).unwrap();
    assert_eq!(
        (loaded.library(), loaded.version()),
        (good.as_path(), (12, 4))
    );
}

#[test]
fn builtins_are_those_of_the_same_major_release() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in [
        "libnvrtc.so.13",
        "libnvrtc-builtins.so.12.9",
        "libnvrtc-builtins.so.13.0",
        "libnvrtc-builtins.so.13.10",
        "libnvrtc-builtins.so.13.9",
        "libnvrtc-builtins.alt.so.13.0",
    ] {
        std::fs::write(at(name), b"").unwrap();
    }
    let in_order = |releases: [&str; 3]| {
        releases.map(|release| at(&format!("libnvrtc-builtins.so.{release}")))
    };
    let found = builtins_beside(&at("libnvrtc.so.13"));
    assert_eq!(found, in_order(["13.10", "13.9", "13.0"]));
    assert!(builtins_beside(Path::new("libnvrtc.so.13")).is_empty());
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("libnvrtc.so.13.9.88", at("libnvrtc.so")).unwrap();
        std::fs::write(at("libnvrtc.so.13.9.88"), b"").unwrap();
        let found = builtins_beside(&at("libnvrtc.so"));
        assert_eq!(found, in_order(["13.9", "13.10", "13.0"]));
    }
}
