//! What becomes of the fields of messages.

use super::*;

/// A topic `/a` of one type, and the messages on it, without a header.
fn topic(kind: &str, definition: &str, messages: &[Cdr]) -> Temporary {
    let mut writer = McapWriter::new(Vec::new(), "ros2", Compression::None).unwrap();
    let schema = writer.schema(kind, "ros2msg", definition.as_bytes());
    let channel = writer.channel(schema, "/a", "cdr");
    for (at, message) in (0..).zip(messages) {
        writer.message(channel, START + at * STEP, &message.clone().into_bytes()).unwrap();
    }
    Temporary::with(&writer.finish().unwrap())
}

/// The shape of the samples of a stream, and their numbers.
fn all(dataset: &Dataset, stream: &str) -> (Vec<usize>, Vec<f64>) {
    let samples = dataset.read(0, &[dataset.stream(stream).unwrap()]).unwrap().remove(0);
    let Values::Numbers(tensor) = &samples.values else { panic!("numbers") };
    (tensor.shape().to_vec(), tensor.as_slice::<f64>().unwrap().to_vec())
}

fn names(cdr: &mut Cdr, names: &[&str]) {
    cdr.size(names.len());
    names.iter().for_each(|name| cdr.text(name.as_bytes()));
}

fn f64s(cdr: &mut Cdr, numbers: &[f64]) {
    cdr.numbers(8, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>());
}

#[test]
fn rows_of_joints_go_with_their_names() {
    const DYNAMIC: &str = "string[] joint_names\nInterfaceValue[] interface_values\n================\n\
                           MSG: control_msgs/InterfaceValue\nfloat64[] values\n";
    let state = |order: &[&str], each: usize| {
        let mut cdr = Cdr::new();
        names(&mut cdr, order);
        cdr.size(order.len());
        for name in order {
            let joint = f64::from(name.as_bytes()[0] - b'a') * 10.0;
            cdr.f64s(&(0..each).map(|at| joint + at as f64).collect::<Vec<_>>());
        }
        cdr
    };
    let messages = [state(&["b", "a"], 3), state(&["a", "b"], 3)];
    let file = topic("control_msgs/msg/DynamicJointState", DYNAMIC, &messages);
    let dataset = file.open().unwrap();
    let row = [0.0, 1.0, 2.0, 10.0, 11.0, 12.0];
    assert_eq!(all(&dataset, "/a/interface_values/values"), (vec![2, 2, 3], [row, row].concat()));
    // As many interfaces as joints: which way the numbers lie is not known.
    let file = topic("control_msgs/msg/DynamicJointState", DYNAMIC, &[state(&["b", "a"], 2)]);
    let dataset = file.open().unwrap();
    assert!(dataset.left_out()[0].1.contains("2 rows of 2"), "{:?}", dataset.left_out());

    const MODELS: &str = "string[] name\ngeometry_msgs/Point[] place\n================\n\
                          MSG: geometry_msgs/Point\nfloat64 x\nfloat64 y\nfloat64 z\n";
    let models = |order: &[&str]| {
        let mut cdr = Cdr::new();
        names(&mut cdr, order);
        cdr.size(order.len());
        for name in order {
            let model = f64::from(name.as_bytes()[0] - b'a') * 10.0;
            f64s(&mut cdr, &[model, model + 1.0, model + 2.0]);
        }
        cdr
    };
    let file = topic("gazebo_msgs/msg/ModelStates", MODELS, &[models(&["a", "b"]), models(&["b", "a"])]);
    assert_eq!(all(&file.open().unwrap(), "/a/place"), (vec![2, 2, 3], [row, row].concat()));
}

#[test]
fn only_lists_of_joints_are_put_in_order() {
    let mut cdr = Cdr::new();
    names(&mut cdr, &["c", "a", "b"]);
    f64s(&mut cdr, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    cdr.f64s(&[2.0, 0.0, 1.0]);
    let file = topic("test_msgs/msg/Arm", "string[] name\nfloat64[9] matrix\nfloat64[] position\n", &[cdr]);
    let dataset = file.open().unwrap();
    assert_eq!(all(&dataset, "/a/matrix").1, (0..9).map(f64::from).collect::<Vec<_>>());
    assert_eq!(all(&dataset, "/a/position").1, [0.0, 1.0, 2.0]);
    // A trajectory of as many points as joints.
    let mut cdr = Cdr::new();
    names(&mut cdr, &["b", "a"]);
    cdr.size(2);
    for point in [0.0, 10.0] {
        cdr.f64s(&[point + 1.0, point]);
        cdr.numbers(4, &[point as u8, 0, 0, 0, 0, 0, 0, 0]);
    }
    let points = "string[] joint_names\nJointTrajectoryPoint[] points\n================\n\
                  MSG: trajectory_msgs/JointTrajectoryPoint\nfloat64[] positions\nduration time_from_start\n";
    let file = topic("trajectory_msgs/msg/JointTrajectory", points, &[cdr]);
    let dataset = file.open().unwrap();
    assert_eq!(all(&dataset, "/a/points/positions"), (vec![1, 2, 2], vec![0.0, 1.0, 10.0, 11.0]));
    let times = dataset.read(0, &[dataset.stream("/a/points/time_from_start").unwrap()]).unwrap().remove(0);
    let Values::Numbers(tensor) = &times.values else { panic!("numbers") };
    assert_eq!(tensor.as_slice::<i64>().unwrap(), [0, 10_000_000_000]);
}

#[test]
fn topics_of_unreadable_messages_are_told() {
    let mut cdr = Cdr::new();
    cdr.size(1000);
    let file = topic("test_msgs/msg/List", "float64[] data\n", &[cdr.clone(), cdr]);
    let left_out = file.open().unwrap().left_out().to_vec();
    let [(name, why)] = left_out.as_slice() else { panic!("{left_out:?}") };
    assert_eq!(name, "/a");
    assert!(why.starts_with("2 of its messages cannot be read; the first: expected 8000 bytes"), "{why}");
    assert!(file.codes().contains(&"stream_left_out"), "{:?}", file.codes());
}

#[test]
fn names_of_fields_take_bounded_memory() {
    let why = |definition: &str| {
        let file = topic("test_msgs/msg/Any", definition, &[Cdr::new()]);
        file.open().unwrap().left_out()[0].1.clone()
    };
    let long = "a".repeat(256);
    assert!(why(&format!("float64 {long}\n")).contains("at most 255 bytes"));
    assert!(why(&format!("{long} x\n")).contains("at most 255 bytes"));
    // Thirty levels of long names above many fields.
    let name = "b".repeat(255);
    let mut nested = format!("T0 {name}\n");
    for level in 0..30 {
        nested += &format!("================\nMSG: test_msgs/T{level}\nT{} {name}\n", level + 1);
    }
    nested += "================\nMSG: test_msgs/T30\n";
    (0..300).for_each(|at| nested += &format!("float64[] x{at}\n"));
    assert!(why(&nested).contains("take more than 1048576 bytes"), "{}", why(&nested));

    let why = |schema: &str| super::super::json::Plan::new(schema.as_bytes(), 64).unwrap_err();
    let number = "{\"type\":\"string\"}";
    assert!(why(&format!("{{\"properties\":{{\"{long}\":{number}}}}}")).contains("at most 255 bytes"));
    let fields = |count: usize| (0..count).map(|at| format!("\"x{at}\":{number}")).collect::<Vec<_>>().join(",");
    assert!(why(&format!("{{\"properties\":{{{}}}}}", fields(20_000))).contains("more than 16384 fields"));
    let mut schema = format!("{{\"type\":\"object\",\"properties\":{{{}}}}}", fields(300));
    for _ in 0..20 {
        schema = format!("{{\"type\":\"object\",\"properties\":{{\"{name}\":{schema}}}}}");
    }
    assert!(why(&schema).contains("take more than 1048576 bytes"), "{}", why(&schema));
}

#[test]
fn sequences_of_the_second_version_are_refused() {
    for (definition, is_read) in [("float64[] x\n", false), ("string[2] x\n", false), ("float64 x\n", true)] {
        let plan = super::super::msgdef::Definitions::parse("test_msgs/msg/Any", definition).unwrap();
        let plan = super::super::cdr::Plan::new(&plan, 64).unwrap();
        let found = plan.decode(&[0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &mut Default::default());
        assert_eq!(found.is_ok(), is_read, "{found:?}");
        assert!(is_read || found.unwrap_err().contains("second version of CDR (representation 7)"));
    }
}

#[test]
fn nothing_is_neither_a_step_nor_a_picture() {
    let text = "Inner[] inner\nuint8 x\n================\nMSG: test_msgs/Inner\nfloat64[0] a\nstring[0] b\n";
    let plan = super::super::msgdef::Definitions::parse("test_msgs/msg/Any", text).unwrap();
    let plan = super::super::cdr::Plan::new(&plan, 64).unwrap();
    let paths: Vec<_> = plan.fields.iter().map(|field| field.path.as_str()).collect();
    assert_eq!(paths, ["x"]);

    let image = "uint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data\n";
    for (height, width) in [(0, 4), (4, 0)] {
        let mut cdr = Cdr::new();
        cdr.size(height);
        cdr.size(width);
        cdr.text(b"rgb8");
        cdr.byte(0);
        cdr.size(width * 3);
        cdr.bytes(&[]);
        let file = topic("sensor_msgs/msg/Image", image, &[cdr]);
        let left_out = file.open().unwrap().left_out().to_vec();
        let text = format!("got {width} x {height}");
        assert!(left_out.iter().any(|(name, why)| name == "/a" && why.contains(&text)), "{left_out:?}");
    }
}

#[test]
fn a_frame_that_comes_twice_has_both_poses() {
    let mut cdr = Cdr::new();
    cdr.size(5);
    let start = (START / 1_000_000_000) as u32;
    // The last two have the same stamp; of another frame there is one.
    for (child, seconds, x) in [("a", 2, 2.0), ("a", 1, 1.0), ("b", 3, 9.0), ("a", 3, 3.0), ("a", 3, 4.0)] {
        cdr.numbers(4, &(start + seconds).to_le_bytes());
        cdr.numbers(4, &[0; 4]);
        cdr.text(b"base");
        cdr.text(child.as_bytes());
        f64s(&mut cdr, &[x, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    }
    let mut writer = McapWriter::new(Vec::new(), "ros2", Compression::None).unwrap();
    let schema = writer.schema("tf2_msgs/msg/TFMessage", "ros2msg", TRANSFORMS.as_bytes());
    let channel = writer.channel(schema, "/tf", "cdr");
    writer.message(channel, START, &cdr.into_bytes()).unwrap();
    let file = Temporary::with(&writer.finish().unwrap());
    let firsts = |dataset: &Dataset| -> Vec<f64> { all(dataset, "/tf/a").1.iter().step_by(7).copied().collect() };
    assert_eq!(firsts(&file.open().unwrap()), [1.0, 2.0, 3.0, 4.0]);
    let by_log = Recording { clock: RecordedClock::Log, ..Recording::default() };
    let dataset = Dataset::open_recording(&file.0, &by_log, &Limits::default()).unwrap();
    assert_eq!(firsts(&dataset), [2.0, 1.0, 3.0, 4.0]);
}

#[test]
fn lists_of_texts_and_objects_are_told() {
    let mut cdr = Cdr::new();
    f64s(&mut cdr, &[1.0]);
    names(&mut cdr, &["x", "y"]);
    let file = topic(
        "test_msgs/msg/Any",
        "float64 a\nstring[] words\nstring[] none\n",
        &[{
            cdr.size(0);
            cdr
        }],
    );
    let told = |name: &str, why: &str| [(name.to_owned(), why.to_owned())];
    assert_eq!(file.open().unwrap().left_out(), told("/a/words", "lists of texts are not read"));

    let mut writer = McapWriter::new(Vec::new(), "", Compression::None).unwrap();
    let schema = r#"{"type":"object","properties":{"a":{"type":"number"},"o":{"type":"object","properties":{
                     "list":{"type":"array","items":{"type":"object"}}}}}}"#;
    let schema = writer.schema("Any", "jsonschema", schema.as_bytes());
    let channel = writer.channel(schema, "/a", "json");
    writer.message(channel, START, br#"{"a":1,"o":{"list":[{}]}}"#).unwrap();
    let file = Temporary::with(&writer.finish().unwrap());
    assert_eq!(file.open().unwrap().left_out(), told("/a/o/list", "lists of \"object\" are not read"));
}
