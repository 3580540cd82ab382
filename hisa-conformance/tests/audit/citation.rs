//! Citations in comments: `SPEC 5.1 to 5.4, V.3 and 9.1`.

/// The clauses a text cites, ranges written out.
pub(crate) fn clauses(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for rest in text.split("SPEC ").skip(1) {
        let mut rest = rest;
        while let Some((first, after)) = clause(rest) {
            rest = after;
            match after.strip_prefix(" to ").and_then(clause) {
                Some((last, after)) => {
                    found.extend(range(first, last));
                    rest = after;
                }
                None => found.push(format!("{}.{}", first.0, first.1)),
            }
            let next = rest
                .strip_prefix(", ")
                .or_else(|| rest.strip_prefix(" and "));
            let Some(next) = next else { break };
            rest = next;
        }
    }
    found
}

/// Section and number at the start of a text, and what follows.
fn clause(text: &str) -> Option<((&str, u32), &str)> {
    let (section, after) = text.split_once('.')?;
    let known = section.parse::<u32>().is_ok() || ["V", "W", "S"].contains(&section);
    let digits = after.find(|c: char| !c.is_ascii_digit());
    let (number, rest) = after.split_at(digits.unwrap_or(after.len()));
    let number = number.parse().ok().filter(|_| known)?;
    Some(((section, number), rest))
}

fn range((section, first): (&str, u32), (same, last): (&str, u32)) -> Vec<String> {
    assert!(
        section == same && first < last,
        "{section}.{first} to {same}.{last}"
    );
    (first..=last).map(|n| format!("{section}.{n}")).collect()
}

/// A function and what its doc comment says.
pub(crate) struct Documented<'a> {
    pub(crate) name: &'a str,
    pub(crate) comment: String,
    pub(crate) is_test: bool,
}

/// Every function of a Rust source that has a doc comment.
pub(crate) fn functions(source: &str) -> Vec<Documented<'_>> {
    let mut found = Vec::new();
    let (mut comment, mut is_test) = (String::new(), false);
    for line in source.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            comment.push_str(words);
        } else if line.starts_with("#[") {
            is_test |= line == "#[test]";
        } else {
            let head = line
                .split_once("fn ")
                .map(|(before, after)| (before.trim(), after));
            if let Some(("" | "pub" | "pub(super)" | "pub(crate)", signature)) = head {
                let end = signature.find(['(', '<']).unwrap_or(signature.len());
                found.push(Documented {
                    name: &signature[..end],
                    comment: comment.clone(),
                    is_test,
                });
            }
            (comment, is_test) = (String::new(), false);
        }
    }
    found.retain(|function| !function.comment.is_empty());
    found
}

#[test]
fn lists_and_ranges_are_read() {
    let cited = |text| clauses(text).join(" ");
    assert_eq!(cited("Ties. SPEC 7.2."), "7.2");
    assert_eq!(
        cited("SPEC 5.1 to 5.3, V.3 and 9.10"),
        "5.1 5.2 5.3 V.3 9.10"
    );
    assert_eq!(
        cited("SPEC 1.0 and then 2.0; (SPEC W.4) SPEC.md 3.1"),
        "1.0 W.4"
    );
    assert_eq!(cited("SPEC Q.1, SPEC x"), "");
}

#[test]
fn comments_belong_to_the_function_below() {
    let source =
        "/// One.\n/// SPEC 1.0.\n#[test]\nfn a() {\n}\n\n/// Two.\npub fn b<T>() {}\nfn c() {}";
    let found = functions(source);
    let shown = |f: &Documented<'_>| format!("{} {}{}", f.name, f.is_test, f.comment);
    let shown: Vec<String> = found.iter().map(shown).collect();
    assert_eq!(shown, ["a true One. SPEC 1.0.", "b false Two."]);
}
