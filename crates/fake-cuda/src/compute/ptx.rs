//! Kernel sources as C++ for the host: PTX and dynamic shared memory, which no macro can replace.

use std::fmt::Write;

/// PTX as kernels write it, and the same in C++; `%0` and so on are the operands.
const MEANINGS: &[(&str, &str)] = &[
    // Nothing but hints for the compiler.
    ("", ""),
    ("mov.u32 %0, %ctaid.x;", "%0 = blockIdx.x"),
    ("mov.u32 %0, %tid.x;", "%0 = threadIdx.x"),
    // Numbers.
    ("cvt.f32.f16 %0, %1;", "%0 = host::from_f16(%1)"),
    ("cvt.rn.f16.f32 %0, %1;", "%0 = host::to_f16(%1)"),
    ("cvt.rn.bf16.f32 %0, %1;", "%0 = host::to_bf16(%1)"),
    ("cvt.rn.f16x2.f32 %0, %1, %2;", "%0 = unsigned(host::to_f16(%1)) << 16 | host::to_f16(%2)"),
    ("cvt.rn.bf16x2.f32 %0, %1, %2;", "%0 = unsigned(host::to_bf16(%1)) << 16 | host::to_bf16(%2)"),
    (
        "{ .reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }",
        "%0 = host::from_f16((unsigned short)%2), %1 = host::from_f16((unsigned short)(%2 >> 16))",
    ),
    ("rsqrt.approx.ftz.f32 %0, %1;", "%0 = host::about(1.0f / sqrtf(%1))"),
    ("rcp.approx.ftz.f32 %0, %1;", "%0 = host::about(1.0f / %1)"),
    // Memory.
    ("red.relaxed.gpu.global.add.u32 [%0], %1;", "*(unsigned*)%0 += %1"),
    ("red.relaxed.gpu.global.add.u64 [%0], %1;", "*(unsigned long long*)%0 += %1"),
    ("red.relaxed.gpu.global.or.b32 [%0], %1;", "*(unsigned*)%0 |= %1"),
    ("red.relaxed.gpu.global.or.b64 [%0], %1;", "*(unsigned long long*)%0 |= %1"),
    ("red.shared.or.b32 [%0], %1;", "*host::at<unsigned>(%0) |= %1"),
    ("ld.shared.u32 %0, [%1];", "%0 = *host::at<unsigned>(%1)"),
    // Copies on their way.
    ("cp.async.ca.shared.global [%0], [%1], %2;", "host::copy_later(%0, %1, %2)"),
    ("cp.async.commit_group;", "host::self().group++"),
    ("cp.async.wait_group %0;", "host::await_copies(%0)"),
];

/// A source or header with PTX and `extern __shared__` replaced.
pub(super) fn as_cpp(source: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = source;
    while let Some((before, statement)) = split_at_word(rest, "asm") {
        let open = statement.find('(').ok_or("asm without parentheses")?;
        let close = open + closing(&statement[open..]).ok_or("asm that does not end")?;
        text.push_str(before);
        write!(text, "do {{ {}; }} while (0)", meaning(&statement[open + 1..close])?).map_err(|e| e.to_string())?;
        rest = &statement[close + 1..];
    }
    text.push_str(rest);
    Ok(with_shared_memory(&text))
}

/// `extern __shared__ __align__(16) T name[];` names what a launch asks for.
fn with_shared_memory(source: &str) -> String {
    let line = |line: &str| {
        let parts = line.trim().strip_prefix("extern __shared__ ").and_then(|rest| rest.strip_suffix("[];"));
        let Some((kind, name)) = parts.and_then(|declared| declared.rsplit_once(' ')) else { return line.to_owned() };
        let kind = kind.split_once(") ").map_or(kind, |(_, kind)| kind);
        let place = format!("({kind}*)host::state->dynamic");
        // Outside of functions there is no time at which a pointer could be set.
        let in_function = line.starts_with(' ');
        if in_function { format!("{kind}* const {name} = {place};") } else { format!("#define {name} ({place})") }
    };
    source.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// What an `asm` statement does, given what stands in its parentheses.
fn meaning(statement: &str) -> Result<String, String> {
    let sections = split(statement, ':');
    let ptx = sections[0].replace('"', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, cpp) = MEANINGS.iter().find(|(known, _)| *known == ptx).ok_or(format!("unknown PTX: {ptx}"))?;
    let operands = sections.iter().skip(1).take(2).flat_map(|section| split(section, ','));
    let operands: Vec<_> =
        operands.filter_map(|operand| operand.split_once('(').map(|(_, place)| format!("({place}"))).collect();
    let mut text = String::new();
    let mut parts = cpp.split('%');
    text.push_str(parts.next().unwrap_or(""));
    for part in parts {
        let number: usize = part[..1].parse().map_err(|_| format!("no operand in {cpp}"))?;
        text.push_str(operands.get(number).ok_or(format!("no operand {number} in {statement}"))?);
        text.push_str(&part[1..]);
    }
    Ok(text)
}

/// Text before a word that stands by itself, and from there on.
fn split_at_word<'t>(text: &'t str, word: &str) -> Option<(&'t str, &'t str)> {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let place = text.match_indices(word).map(|(place, _)| place).find(|&place| {
        let (before, after) = (&text[..place], &text[place + word.len()..]);
        !before.ends_with(part_of_name) && (after.starts_with('(') || after.starts_with(" volatile("))
    })?;
    Some(text.split_at(place))
}

/// Where the parenthesis that `text` begins with is closed.
fn closing(text: &str) -> Option<usize> {
    outside_strings(text).find(|&(_, _, depth)| depth == 0).map(|(place, ..)| place)
}

/// The parts between separators that stand in neither strings nor parentheses.
fn split(text: &str, separator: char) -> Vec<&str> {
    let places = outside_strings(text).filter(|&(_, letter, depth)| letter == separator && depth == 0);
    let mut parts = Vec::new();
    let mut start = 0;
    for (place, ..) in places {
        parts.push(text[start..place].trim());
        start = place + 1;
    }
    parts.push(text[start..].trim());
    parts
}

/// Letters outside of strings, with their place and how many parentheses are open after them.
fn outside_strings(text: &str) -> impl Iterator<Item = (usize, char, i32)> + '_ {
    let (mut in_string, mut depth) = (false, 0);
    text.char_indices().filter_map(move |(place, letter)| {
        in_string ^= letter == '"';
        if in_string {
            return None;
        }
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        Some((place, letter, depth))
    })
}
