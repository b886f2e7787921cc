//! Functions that are compiled again for sizes that calls come back to.

use rc::variants::{News, Policy};
use rc::{Function, Target};
use rc_runtime::{Place, Tensor};

const SUMS: &str = "func.func @main(%x: tensor<n x 5 x f32>, %w: tensor<5xf32> {rc.constant = true}) -> tensor<n x f32> attributes {rc.symbols = #rc.symbols<n = [1, 512, 1]>} {
  %b = core.broadcast %w {dims = [1]} : tensor<n x 5 x f32>
  %p = core.mul %x, %b : tensor<n x 5 x f32>
  %s = core.reduce %p {dims = [1], kind = add} : tensor<n x f32>
  func.return %s
}";

fn function(policy: Policy) -> Function {
    rc::register();
    let module = rc_parser::parse_module("test", SUMS.to_string()).0.expect("a module");
    Function::compile(&module, &Target::host(), Place::Cpu, policy).expect("a function")
}

/// Calls the function with so many rows, and checks what it gives.
fn call(f: &Function, rows: usize) {
    let x: Vec<f32> = (0..5 * rows).map(|i| (i % 17) as f32 - 8.0).collect();
    let w = [1.0f32, -2.0, 0.5, 4.0, 0.25];
    let args = [Tensor::from_slice(&[rows, 5], &x).unwrap(), Tensor::from_slice(&[5], &w).unwrap()];
    let found = f.run(&args).unwrap();
    let expected: Vec<f32> = x.chunks(5).map(|row| row.iter().zip(w).map(|(a, b)| a * b).sum()).collect();
    assert_eq!((found[0].shape(), found[0].as_slice::<f32>().unwrap()), ([rows].as_slice(), expected.as_slice()));
}

#[test]
fn sizes_that_come_back_get_a_program() {
    let f = function(Policy { limit: 2, ..Policy::default() });
    for rows in [100, 100, 7, 100, 6, 1, 1, 1, 300, 300] {
        call(&f, rows);
    }
    assert_eq!(
        f.explain(),
        [
            "all sizes: 7 calls",
            "n = 100: 2 calls, made at call 2 of such sizes, with n = 100; n had the same value in all calls",
            "n = 5 to 8: 1 call, made at call 2 of such sizes, with n = 6",
            "no more are made: the limit is 2",
        ]
    );
    let news = f.news();
    assert!(matches!(&news[..2], [News::Made(a), News::Made(b)] if a.contains("n = 100") && b.contains("n = 5 to 8")));
    assert!(matches!(&news[2..], [News::Warning(why)] if why.contains("further sizes (n = 1)")), "{news:?}");
    let error = f.run(&[Tensor::from_slice(&[600, 5], &[0.0f32; 3000]).unwrap()]).unwrap_err().to_string();
    assert!(error.contains("takes 2 arguments"), "{error}");
}

#[test]
fn programs_are_made_behind() {
    let f = function(Policy { behind: true, ..Policy::default() });
    (0..3).for_each(|_| call(&f, 12));
    Function::settle();
    call(&f, 12);
    let lines = f.explain();
    assert!(lines[0] == "all sizes: 3 calls" || lines[0] == "all sizes: 2 calls", "{lines:?}");
    assert!(lines[1].starts_with("n = 12: ") && lines[1].contains(", made at call 2"), "{lines:?}");
}

#[test]
fn none_are_made_where_none_are_asked_for() {
    let f = function(Policy { limit: 0, ..Policy::default() });
    (0..3).for_each(|_| call(&f, 12));
    assert!(f.explain().is_empty() && f.news().is_empty());
}

const ROWS: &str = "func.func @main(%x: tensor<n x 5 x f32>, %ids: tensor<n x i64>, %table: tensor<10x5xf32>, %w: tensor<7x5xf32>) -> (tensor<n x 7 x f32>, tensor<5 x n x f32>, tensor<n x i64>) attributes {rc.symbols = #rc.symbols<n = [0, 100, 1]>} {
  %e = tensor.embedding %table, %ids : tensor<n x 5 x f32>
  %y0 = core.add %x, %e : tensor<n x 5 x f32>
  %y = tensor.gelu %y0 {approximate = none} : tensor<n x 5 x f32>
  %z = tensor.linear %y, %w : tensor<n x 7 x f32>
  %s = tensor.softmax %z {dim = 1} : tensor<n x 7 x f32>
  %t = core.transpose %y {perm = [1, 0]} : tensor<5 x n x f32>
  %k = core.constant {value = 60 : i64} : i64
  %c = core.broadcast %k {dims = []} : tensor<n x i64>
  %q = core.div %c, %ids : tensor<n x i64>
  func.return %s, %t, %q
}";

fn compiled(text: &str, policy: Policy) -> Function {
    rc::register();
    let (module, errors) = rc_parser::parse_module("test", text.to_string());
    let module = module.unwrap_or_else(|| panic!("{errors:?}"));
    Function::compile(&module, &Target::host(), Place::Cpu, policy).expect("a function")
}

/// Rows past the last are copies of one that there is: a division by zero, or an index that there is not, would be found here.
#[test]
fn sizes_are_filled_up_to_buckets() {
    let f = compiled(ROWS, Policy { buckets: vec![4, 16, 64, 1000], ..Policy::default() });
    assert_eq!(f.news(), []);
    let all = compiled(ROWS, Policy { limit: 0, ..Policy::default() });
    let floats = |count: usize, shape: &[usize]| {
        let values: Vec<f32> = (0..count).map(|i| ((i * 7) % 11) as f32 * 0.25 - 1.0).collect();
        Tensor::from_slice(shape, &values).unwrap()
    };
    for rows in [3usize, 4, 1, 5, 16, 17, 64, 65, 100, 0, 3] {
        let ids: Vec<i64> = (0..rows).map(|i| 1 + (i * 3) as i64 % 9).collect();
        let args = [
            floats(5 * rows, &[rows, 5]),
            Tensor::from_slice(&[rows], &ids).unwrap(),
            floats(50, &[10, 5]),
            floats(35, &[7, 5]),
        ];
        let (found, expected) = (f.run(&args).unwrap(), all.run(&args).unwrap());
        assert_eq!(found[2].as_slice::<i64>().unwrap(), expected[2].as_slice::<i64>().unwrap(), "{rows}");
        for i in 0..2 {
            assert_eq!(found[i].shape(), expected[i].shape());
            let pairs = found[i].as_slice::<f32>().unwrap().iter().zip(expected[i].as_slice::<f32>().unwrap());
            pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{rows} rows, result {i}: {a} {b}"));
        }
    }
    let lines = f.explain();
    assert_eq!(lines.len(), 4, "{lines:?}");
    // Of 65 and more no bucket is one that the symbol can be, and of none there is no row to copy.
    assert_eq!(lines[0], "all sizes: 3 calls");
    assert_eq!(lines[1], "n = 1 to 4: 4 calls, made at call 1 of such sizes, with n = 3; filled up to n = 4");
    assert_eq!(lines[3], "n = 17 to 64: 2 calls, made at call 1 of such sizes, with n = 17; filled up to n = 64");
}

#[test]
fn sizes_that_results_depend_on_are_not_filled_up() {
    let head = "func.func @main(%x: tensor<n x 5 x f32>, %ids: tensor<3xi64>) -> RESULT attributes {rc.symbols = #rc.symbols<n = [3, 100, 1]>} {\n";
    for (result, body, why) in [
        ("tensor<5xf32>", "%y = core.reduce %x {dims = [0], kind = add} : tensor<5xf32>", "all n elements"),
        ("tensor<n x 5 x f32>", "%y = core.reverse %x {dims = [0]} : tensor<n x 5 x f32>", "is read"),
        ("tensor<n x 5 x f32>", "%y = core.scan %x {dim = 0, kind = add} : tensor<n x 5 x f32>", "n"),
        (
            "tensor<5 x n x f32>",
            "%t = core.transpose %x {perm = [1, 0]} : tensor<5 x n x f32>\n  %y, %at = core.sort %t : tensor<5 x n x f32>, tensor<5 x n x i64>",
            "all of them",
        ),
        // Rows one behind the other, and the same elements as columns.
        (
            "tensor<5 x n x f32>",
            "%a = core.exp %x : tensor<n x 5 x f32>\n  %b = core.reshape %a : tensor<5 x n x f32>\n  %y = core.exp %b : tensor<5 x n x f32>",
            "is read",
        ),
        ("tensor<(5 * n) x f32>", "%y = core.reshape %x : tensor<(5 * n) x f32>", "5 * n"),
        ("tensor<1x5xf32>", "%y = core.slice %x {starts = [n - 1, 0], sizes = [1, 5]} : tensor<1x5xf32>", "is read"),
    ] {
        let text = format!("{}  {body}\n  func.return %y\n}}", head.replace("RESULT", result));
        let f = compiled(&text, Policy { buckets: vec![8], ..Policy::default() });
        let news = f.news();
        let says = |text: &str| text.contains("'buckets' has no effect") && text.contains(why);
        assert!(matches!(&news[..], [News::Warning(text)] if says(text)), "{body}: {news:?}");
    }
}
