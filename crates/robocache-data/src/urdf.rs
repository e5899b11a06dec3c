//! Robots from URDF files.
//!
//! Links, joints, limits and mimics are read as urdfdom reads them; shapes, masses and transmissions are passed over.

use std::path::Path;

use robocache::ops::kinematics::{Joint, Mimic, Motion, Robot, pose};
use robocache::{Error, ErrorKind, Result};
use roxmltree::{Document, Node, ParsingOptions};

use crate::files::RegularFile;
use crate::limits::{Limits, exceeds, file_error, unwound};

/// Bytes of a file, at most: a humanoid's takes less than one MiB.
const MOST_BYTES: u64 = 16 << 20;
/// Elements, attributes and texts, at most.
const MOST_NODES: u32 = 1 << 20;

/// The text of a file; [`parse_urdf`] makes a robot of it.
pub fn read_urdf_text(path: &Path, limits: &Limits) -> Result<String> {
    crate::files::ensure_path(path, "path")?;
    let most = MOST_BYTES.min(limits.max_metadata);
    let bytes = RegularFile::open(path)?.read_all(most.saturating_add(1));
    let bytes = bytes.map_err(|error| file_error(path, "cannot read", error))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
        return Err(exceeds(path, format!("a URDF of more than {most} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let text = format!("not UTF-8 from byte {} on", error.utf8_error().valid_up_to());
        Error::new(ErrorKind::CorruptData, text).path(path)
    })
}

/// The robot that a text describes, between `base` and `tip` where these are given. Errors name the file that it is of.
pub fn parse_urdf(text: &str, file: Option<&Path>, base: Option<&str>, tip: Option<&str>) -> Result<Robot> {
    let robot = parse(text, base, tip);
    match file {
        Some(file) => robot.map_err(|error| error.path(file)),
        None => robot,
    }
}

fn parse(text: &str, base: Option<&str>, tip: Option<&str>) -> Result<Robot> {
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > MOST_BYTES {
        return Err(Error::new(ErrorKind::LimitExceeded, format!("a URDF of more than {MOST_BYTES} bytes")));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // Documents with a DTD, which may name files and grow without end, are refused.
    let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let parsed = || {
        Document::parse_with_options(text, options).map_err(|error| match error {
            roxmltree::Error::DtdDetected => wrong("it has a DTD (<!DOCTYPE ...>), which is not read"),
            roxmltree::Error::NodesLimitReached => {
                Error::new(ErrorKind::LimitExceeded, format!("more than {MOST_NODES} elements and attributes"))
            }
            other => wrong(format!("no XML: {other}")),
        })
    };
    let document = unwound("XML", parsed)?;
    let reader = Reader { document: &document };
    let root = document.root_element();
    let name = root.tag_name().name();
    if name != "robot" {
        return Err(wrong(format!("expected a <robot>, got a <{name}>")));
    }
    let is_macro = |node: &Node<'_, '_>| node.tag_name().namespace().is_some_and(|name| name.ends_with("xacro"));
    if let Some(found) = root.descendants().find(is_macro) {
        let line = reader.line(found);
        return Err(wrong(format!("line {line}: this is xacro; expand it first: xacro robot.urdf.xacro > robot.urdf")));
    }
    let children = |tag| root.children().filter(move |node| node.has_tag_name(tag));
    let links = children("link").map(|node| reader.text(node, "name")).collect::<Result<Vec<_>>>()?;
    let joints = children("joint").map(|node| reader.joint(node)).collect::<Result<Vec<_>>>()?;
    Robot::new(root.attribute("name").unwrap_or("robot"), &links, &joints, base, tip)
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::CorruptData, message)
}

/// Attributes with the line of what is wrong.
struct Reader<'d, 'i> {
    document: &'d Document<'i>,
}

impl Reader<'_, '_> {
    fn line(&self, node: Node<'_, '_>) -> u32 {
        self.document.text_pos_at(node.range().start).row
    }

    fn wrong(&self, node: Node<'_, '_>, message: &str) -> Error {
        wrong(format!("line {}: <{}> {message}", self.line(node), node.tag_name().name()))
    }

    fn text(&self, node: Node<'_, '_>, name: &str) -> Result<String> {
        let found = node.attribute(name).filter(|text| !text.is_empty());
        found.map(str::to_owned).ok_or_else(|| self.wrong(node, &format!("has no {name}")))
    }

    fn number(&self, node: Node<'_, '_>, name: &str, default: f64) -> Result<f64> {
        let Some(text) = node.attribute(name) else { return Ok(default) };
        let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| self.wrong(node, &format!("{name}: expected a number, got {text:?}")))
    }

    fn three(&self, node: Node<'_, '_>, name: &str, default: [f64; 3]) -> Result<[f64; 3]> {
        let Some(text) = node.attribute(name) else { return Ok(default) };
        let numbers: Option<Vec<f64>> =
            text.split_whitespace().map(|part| part.parse().ok().filter(|number: &f64| number.is_finite())).collect();
        let three = numbers.and_then(|numbers| <[f64; 3]>::try_from(numbers).ok());
        three.ok_or_else(|| self.wrong(node, &format!("{name}: expected three numbers, got {text:?}")))
    }

    fn joint(&self, node: Node<'_, '_>) -> Result<Joint> {
        let child = |tag: &'static str| node.children().find(move |child| child.has_tag_name(tag));
        let link = |tag: &'static str| {
            let found = child(tag).ok_or_else(|| self.wrong(node, &format!("has no <{tag}>")))?;
            self.text(found, "link")
        };
        let name = self.text(node, "name")?;
        let kind = self.text(node, "type")?;
        let motion = match kind.as_str() {
            "fixed" => Motion::Fixed,
            "revolute" | "continuous" => Motion::Turn,
            "prismatic" => Motion::Slide,
            "planar" => Motion::Other("planar"),
            "floating" => Motion::Other("floating"),
            _ => return Err(self.wrong(node, &format!("{name:?} is of an unknown type, {kind:?}"))),
        };
        let origin = match child("origin") {
            Some(origin) => {
                let position = self.three(origin, "xyz", [0.0; 3])?;
                pose::from_rpy(position, self.three(origin, "rpy", [0.0; 3])?)
            }
            None => pose::IDENTITY,
        };
        let axis = match child("axis") {
            Some(axis) => self.three(axis, "xyz", [1.0, 0.0, 0.0])?,
            None => [1.0, 0.0, 0.0],
        };
        let is_limited = matches!(kind.as_str(), "revolute" | "prismatic");
        let limits = match child("limit").filter(|_| is_limited) {
            Some(limit) => [self.number(limit, "lower", 0.0)?, self.number(limit, "upper", 0.0)?],
            None if is_limited => return Err(self.wrong(node, &format!("{name:?} is {kind} and has no <limit>"))),
            None => [f64::NEG_INFINITY, f64::INFINITY],
        };
        let mimic = match child("mimic") {
            Some(mimic) => Some(Mimic {
                joint: self.text(mimic, "joint")?,
                factor: self.number(mimic, "multiplier", 1.0)?,
                offset: self.number(mimic, "offset", 0.0)?,
            }),
            None => None,
        };
        Ok(Joint { name, parent: link("parent")?, child: link("child")?, origin, motion, axis, limits, mimic })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARM: &str = r#"<?xml version="1.0"?>
<robot name="arm">
  <link name="base"/><link name="upper"/><link name="lower"/><link name="tool"/>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="upper"/><origin xyz="0 0 1" rpy="0 0 0"/><axis xyz="0 0 1"/>
    <limit lower="-1" upper="2" effort="1" velocity="1"/>
  </joint>
  <joint name="elbow" type="continuous"><parent link="upper"/><child link="lower"/><axis xyz="0 1 0"/></joint>
  <joint name="flange" type="fixed"><parent link="lower"/><child link="tool"/><origin xyz="0.5 0 0"/></joint>
</robot>"#;

    #[test]
    fn an_arm_is_read() {
        for text in [ARM.to_owned(), format!("\u{feff}{ARM}")] {
            let robot = parse(&text, None, None).unwrap();
            assert_eq!(robot.joint_names(), ["shoulder", "elbow"]);
            assert_eq!(robot.limits(), [[-1.0, 2.0], [f64::NEG_INFINITY, f64::INFINITY]]);
            assert_eq!((robot.name(), robot.tip()), ("arm", Some("tool")));
        }
        assert_eq!(parse(ARM, Some("upper"), Some("lower")).unwrap().joint_names(), ["elbow"]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let changed = |from: &str, to: &str| {
            assert!(ARM.contains(from));
            ARM.replacen(from, to, 1)
        };
        let entity = "<!DOCTYPE robot [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><robot name=\"x\">&x;</robot>";
        let bomb = "<!DOCTYPE r [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><robot>&b;</robot>";
        let xacro = "<robot xmlns:xacro=\"http://www.ros.org/wiki/xacro\"><xacro:macro name=\"x\"/></robot>";
        let cases = [
            (String::new(), "no XML"),
            ("<robot".to_owned(), "no XML"),
            ("<sdf/>".to_owned(), "expected a <robot>, got a <sdf>"),
            ("<robot/>".to_owned(), "there are no links"),
            (entity.to_owned(), "DTD"),
            (bomb.to_owned(), "DTD"),
            (xacro.to_owned(), "this is xacro"),
            (changed("name=\"base\"", ""), "line 3: <link> has no name"),
            (changed("link name=\"base\"", "link name=\"upper\""), "two links are called \"upper\""),
            (changed("parent link=\"base\"", "parent link=\"\""), "line 5: <parent> has no link"),
            (changed("<parent link=\"base\"/>", ""), "line 4: <joint> has no <parent>"),
            (changed("parent link=\"base\"", "parent link=\"nobody\""), "its parent \"nobody\" is no link"),
            (changed("type=\"revolute\"", "type=\"ball\""), "unknown type, \"ball\""),
            (changed("type=\"revolute\"", ""), "line 4: <joint> has no type"),
            (changed("type=\"continuous\"", "type=\"prismatic\""), "\"elbow\" is prismatic and has no <limit>"),
            (changed("0 0 1\" rpy", "0 0\" rpy"), "line 5: <origin> xyz: expected three numbers, got \"0 0\""),
            (changed("0 0 1\" rpy", "0 0 nan\" rpy"), "expected three numbers"),
            (changed("lower=\"-1\"", "lower=\"1e999\""), "line 6: <limit> lower: expected a number"),
            (changed("lower=\"-1\"", "lower=\"3\""), "limits from 3 to 2"),
            (changed("<axis xyz=\"0 1 0\"", "<axis xyz=\"0 0 0\""), "has no direction"),
            (changed("child link=\"tool\"", "child link=\"base\""), "form a loop"),
        ];
        for (text, told) in cases {
            let error = parse(&text, None, None).unwrap_err();
            assert!(error.to_string().contains(told), "{error} is not about {told}");
            assert_eq!(error.kind(), ErrorKind::CorruptData, "{error}");
        }
        let deep = format!("<robot>{}", "<link name=\"a\">".repeat(2_000_000));
        assert!(matches!(
            parse(&deep, None, None).unwrap_err().kind(),
            ErrorKind::CorruptData | ErrorKind::LimitExceeded
        ));
        let large = " ".repeat(17 << 20);
        assert_eq!(parse(&large, None, None).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
}
