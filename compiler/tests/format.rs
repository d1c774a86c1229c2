//! The formatter: every token and comment survives, twice is once, and the forms that it gives.

use std::{
    fs,
    path::{Path, PathBuf},
};

use logos::Logos;
use proptest::prelude::*;
use tesserine_compiler::{
    span::SourceMap,
    syntax::{format, token::Token},
};

fn formatted(text: &str) -> Option<String> {
    let mut sources = SourceMap::default();
    let file = sources.add("t.tess", text);
    format(&sources, file).ok()
}

/// The text's tokens and comments.
fn tokens(text: &str) -> Vec<&str> {
    Token::lexer(text)
        .filter_map(|token| Some(token.ok()?.text().trim_end()))
        .collect()
}

fn holds(name: &str, text: &str) -> Result<bool, String> {
    let Some(once) = formatted(text) else {
        return Ok(false);
    };
    if tokens(text) != tokens(&once) {
        return Err(format!(
            "{name}: tokens or comments differ\n{text}\n----\n{once}"
        ));
    }
    match formatted(&once) {
        None => Err(format!("{name}: what was formatted does not parse\n{once}")),
        Some(twice) if twice != once => Err(format!(
            "{name}: not the same when formatted again\n{once}\n----\n{twice}"
        )),
        _ => Ok(true),
    }
}

fn corpus() -> Vec<(PathBuf, String)> {
    fn collect(folder: &Path, out: &mut Vec<(PathBuf, String)>) {
        let mut entries: Vec<PathBuf> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                collect(&path, out);
            } else if path.extension().is_some_and(|e| e == "tess")
                && let Ok(text) = fs::read_to_string(&path)
            {
                out.push((path, text));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut out = Vec::new();
    for folder in [
        "tests/samples",
        "tests/diagnostics",
        "kernels-dsl",
        "stdlib",
    ] {
        collect(&root.join(folder), &mut out);
    }
    out
}

#[test]
fn every_token_and_comment_survives() {
    let mut count = 0;
    for (path, text) in corpus() {
        count += usize::from(holds(&path.display().to_string(), &text).unwrap());
    }
    assert!(count >= 60, "only {count} programs parse");
}

#[test]
fn the_form() {
    let text = "\
//! A file.
use std::epilogue::{ Epilogue,Identity };


/// Doubles.
kernel k< T:dtype in { f16,bf16 },E:Epilogue=Identity<bf16, List<1> > >(
  a:view < T > [m,k strided] sorted, // the input
      b? : out view<T>[m],n:i32=-1, // more
)
  where m<=4,
  n>0
    for_ in 3
";
    assert_eq!(formatted(text), None, "it does not parse");
    let text = "\
//! A file.
use std::epilogue::{ Epilogue,Identity };


/// Doubles.
kernel k< T:dtype in { f16,bf16 },E:Epilogue=Identity<bf16, List<1> > >(

  a:view < T > [m,k strided] sorted, // the input
      b? : out view<T>[m],n:i32=-1, // more
)
  where m<=4,
  n>0
    grid persistent dynamic(i in ceil_div( m,4 ),j in 2 cluster)  order grouped( 4 ) {
 // of the loop
outer:for(j,part)in 0..m rev step(2){
let x=-a[ i * 4+:4,.. ]*2+ f::<T,(m<4)>( x,pad=- 1 );
  let y = if x<0{ 1 }else{ -1 };
        if !(x<y)&&assert_it(x){ return ; }

        // last
}
b[ i,_ ] = (view a[0 .. 2,1])[i *4 +: 4]
as T;
assert const( m==3,\"no\" );
let x = foo(bar(a,
b), [
c,
]);
}
schedule k for T=bf16{
sm_75{BM:1}
sm_80..=sm_90a{ BM:1,l.stages:2 } // two
tune{ BM:[1,2] where BM<3 }
}
variant Plain:I{ }
kernel l<T:dtype in{f16} > ( x:view<T>[m] )grid(i in m)order rev ( i ){ }
";
    let expected = "\
//! A file.
use std::epilogue::{Epilogue, Identity};

/// Doubles.
kernel k<T: dtype in {f16, bf16}, E: Epilogue = Identity<bf16, List<1> > >(
    a: view<T>[m, k strided] sorted,  // the input
    b?: out view<T>[m], n: i32 = -1,  // more
)
where m <= 4,
    n > 0
grid persistent dynamic (i in ceil_div(m, 4), j in 2 cluster) order grouped(4) {
    // of the loop
    outer: for (j, part) in 0..m rev step (2) {
        let x = -a[i * 4 +: 4, ..]*2 + f::<T, (m < 4)>(x, pad = -1);
        let y = if x < 0 { 1 } else { -1 };
        if !(x < y) && assert_it(x) { return; }

        // last
    }
    b[i, _] = (view a[0 .. 2, 1])[i * 4 +: 4]
        as T;
    assert const(m == 3, \"no\");
    let x = foo(bar(a,
        b), [
            c,
        ]);
}
schedule k for T = bf16 {
    sm_75            { BM: 1 }
    sm_80 ..= sm_90a { BM: 1, l.stages: 2 }  // two
    tune             { BM: [1, 2] where BM < 3 }
}
variant Plain: I {}
kernel l<T: dtype in {f16}>(x: view<T>[m]) grid (i in m) order rev(i) {}
";
    assert_eq!(formatted(text).as_deref(), Some(expected));
}

#[test]
fn what_does_not_parse_is_not_touched() {
    assert_eq!(formatted("fn f( = 1;"), None);
    assert_eq!(formatted("let \"unclosed"), None);
    assert_eq!(formatted("").as_deref(), Some(""));
    assert_eq!(
        formatted("\n\n// only\r\n\n\n").as_deref(),
        Some("// only\n")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// However a program is spaced and commented.
    #[test]
    fn any_spacing(which in any::<prop::sample::Index>(), gaps in prop::collection::vec(0..12u8, 64..256)) {
        let corpus = corpus();
        let (path, text) = which.get(&corpus);
        let mut spaced = String::new();
        for (i, token) in tokens(text).into_iter().enumerate() {
            spaced.push_str(token);
            spaced.push_str(match gaps[i % gaps.len()] {
                _ if token.starts_with("//") => "\n",
                0 => "\n",
                1 => "\n\n\n",
                2 => " // between\n",
                3 => "\n  // before\n",
                4 => "   ",
                5 => "\t\r\n",
                _ => " ",
            });
        }
        if let Err(message) = holds(&path.display().to_string(), &spaced) {
            prop_assert!(false, "{message}");
        }
    }
}
