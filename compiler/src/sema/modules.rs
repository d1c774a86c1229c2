//! Files, what they use, and what their names mean.
//!
//! A file is a module. `use std::…` reads the embedded standard library, every other path a file beside the current one or
//! in a folder below it. Modules must not use each other in a circle. Schedules of a kernel, and its bodies for single
//! targets, may stand in any file of its folder: those files are read too.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use indexmap::IndexMap;
use petgraph::{algo::tarjan_scc, graph::DiGraph};
use sha2::{Digest, Sha256};

use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    span::{FileId, SourceMap, Span},
    syntax::{self, ast},
};

/// A loaded source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Module(u32);

/// The standard library: module name and text.
const STD: &[(&str, &str)] = &[
    (
        "activation",
        include_str!("../../../stdlib/activation.tess"),
    ),
    ("attention", include_str!("../../../stdlib/attention.tess")),
    ("epilogue", include_str!("../../../stdlib/epilogue.tess")),
    ("layouts", include_str!("../../../stdlib/layouts.tess")),
    ("order", include_str!("../../../stdlib/order.tess")),
    ("output", include_str!("../../../stdlib/output.tess")),
];

/// All loaded files.
#[derive(Debug, Default)]
pub struct Program {
    pub(crate) sources: SourceMap,
    modules: Vec<Source>,
    /// By canonical path, or by `std/…`.
    by_key: IndexMap<PathBuf, Module>,
}

#[derive(Debug)]
struct Source {
    file: FileId,
    /// The folder in which its `use` paths begin; none for texts and `std`.
    folder: Option<PathBuf>,
    /// What names of files are relative to.
    root: Option<PathBuf>,
    ast: ast::File,
    names: IndexMap<String, Def>,
    uses: Vec<(Module, Span)>,
    /// Files of the folder that hold schedules or bodies of kernels of this one.
    related: Vec<Module>,
}

/// What a name of a module is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Def {
    /// Item `index` of a module.
    Item(Module, usize),
    Module(Module),
}

impl Program {
    /// The files loaded so far.
    pub fn sources(&self) -> &SourceMap {
        &self.sources
    }

    /// The syntax tree of a module's own file.
    pub fn ast(&self, module: Module) -> &ast::File {
        &self.modules[module.0 as usize].ast
    }

    pub(crate) fn file(&self, module: Module) -> FileId {
        self.modules[module.0 as usize].file
    }

    /// What `name` is in `module`.
    pub(crate) fn lookup(&self, module: Module, name: &str) -> Option<Def> {
        self.modules[module.0 as usize].names.get(name).copied()
    }

    /// Where the item that `name` is in `module` is named.
    pub fn declaration(&self, module: Module, name: &str) -> Option<Span> {
        match self.lookup(module, name)? {
            Def::Item(owner, index) => item_name(&self.item(owner, index).kind).map(|n| n.span),
            Def::Module(_) => None,
        }
    }

    pub(crate) fn item(&self, module: Module, index: usize) -> &ast::Item {
        &self.ast(module).items[index]
    }

    /// Every name of a module, in source order.
    pub(crate) fn names(&self, module: Module) -> impl Iterator<Item = &str> {
        self.modules[module.0 as usize]
            .names
            .keys()
            .map(String::as_str)
    }

    /// The error of `first::item` where `first` is `module` and has no such item.
    pub(crate) fn no_item(
        &self,
        module: Module,
        first: &ast::Ident,
        item: &ast::Ident,
    ) -> Diagnostic {
        let diagnostic = Diagnostic::error(
            codes::E0101,
            item.span,
            format!("`{}` has no item `{}`", first.name, item.name),
        );
        match nearest(&item.name, self.names(module)) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic,
        }
    }

    /// The module, and the files of its folder with schedules or bodies of its kernels.
    pub(crate) fn with_related(&self, module: Module) -> impl Iterator<Item = Module> {
        std::iter::once(module).chain(self.modules[module.0 as usize].related.iter().copied())
    }

    /// The other loaded files of the module's folder.
    pub(crate) fn beside(&self, module: Module) -> impl Iterator<Item = Module> {
        let folder = self.modules[module.0 as usize].folder.as_ref();
        (0..self.modules.len() as u32).map(Module).filter(move |m| {
            *m != module && folder.is_some() && self.modules[m.0 as usize].folder.as_ref() == folder
        })
    }

    /// SHA-256 over names and texts of the module and all that it uses, in hexadecimal.
    pub fn source_hash(&self, module: Module) -> String {
        let mut seen = vec![module];
        let mut next = 0;
        while let Some(&m) = seen.get(next) {
            next += 1;
            let source = &self.modules[m.0 as usize];
            for m in source
                .uses
                .iter()
                .map(|(m, _)| *m)
                .chain(source.related.iter().copied())
            {
                if !seen.contains(&m) {
                    seen.push(m);
                }
            }
        }
        let mut hash = Sha256::new();
        for m in seen {
            let source = self
                .sources
                .get(self.file(m))
                .expect("the file of a module");
            for part in [&source.name, &source.text] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part.as_bytes());
            }
        }
        hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Loads `path` and all that it uses.
    pub fn load(&mut self, path: &Path, root: Option<&Path>) -> Result<Module, Diagnostics> {
        let mut diagnostics = Diagnostics::default();
        let canonical = match path.canonicalize() {
            Ok(path) => path,
            Err(error) => {
                diagnostics.push(unreadable(path, &error.to_string()));
                return Err(diagnostics);
            }
        };
        let folder = canonical.parent().map(Path::to_owned).unwrap_or_default();
        let root = match root {
            // The folder of a bare file name is the empty path, which cannot be looked up.
            Some(root) if root.as_os_str().is_empty() => Path::new(".")
                .canonicalize()
                .unwrap_or_else(|_| folder.clone()),
            Some(root) => root.canonicalize().unwrap_or_else(|_| root.to_owned()),
            None => folder.clone(),
        };
        let before = self.modules.len();
        let module = self.load_file(&canonical, &root, &mut diagnostics);
        self.finish(before, module, diagnostics)
    }

    /// Takes `text` as a file of this name; it can use `std` only.
    pub fn load_text(&mut self, name: &str, text: &str) -> Result<Module, Diagnostics> {
        let mut diagnostics = Diagnostics::default();
        let before = self.modules.len();
        let module = self.add(
            name.to_owned(),
            text.to_owned(),
            None,
            None,
            false,
            &mut diagnostics,
        );
        self.finish(before, Some(module), diagnostics)
    }

    fn finish(
        &mut self,
        before: usize,
        module: Option<Module>,
        mut diagnostics: Diagnostics,
    ) -> Result<Module, Diagnostics> {
        let mut next = before;
        while next < self.modules.len() {
            self.load_related(Module(next as u32), &mut diagnostics);
            next += 1;
        }
        self.report_circles(before, &mut diagnostics);
        for i in before..self.modules.len() {
            self.bind_names(Module(i as u32), &mut diagnostics);
        }
        match module {
            Some(module) if !diagnostics.has_errors() => Ok(module),
            _ => {
                // What failed is read anew next time.
                self.by_key.retain(|_, m| (m.0 as usize) < before);
                Err(diagnostics)
            }
        }
    }

    fn load_file(
        &mut self,
        path: &Path,
        root: &Path,
        diagnostics: &mut Diagnostics,
    ) -> Option<Module> {
        if let Some(&module) = self.by_key.get(path) {
            return Some(module);
        }
        let text = match fs::read(path).map(String::from_utf8) {
            Ok(Ok(text)) => text,
            Ok(Err(_)) => {
                diagnostics.push(unreadable(path, "it is not UTF-8"));
                return None;
            }
            Err(error) => {
                diagnostics.push(unreadable(path, &error.to_string()));
                return None;
            }
        };
        let name = shown_name(path, root);
        let module = self.add(
            name,
            text,
            path.parent().map(Path::to_owned),
            Some(root.to_owned()),
            false,
            diagnostics,
        );
        Some(module)
    }

    fn add(
        &mut self,
        name: String,
        text: String,
        folder: Option<PathBuf>,
        root: Option<PathBuf>,
        std: bool,
        diagnostics: &mut Diagnostics,
    ) -> Module {
        let key = match &folder {
            Some(folder) => folder.join(Path::new(&name).file_name().unwrap_or_default()),
            None => PathBuf::from(&name),
        };
        let file = self.sources.add(name, text);
        let ast = syntax::parse(&self.sources, file, diagnostics);
        let module = Module(self.modules.len() as u32);
        self.modules.push(Source {
            file,
            folder,
            root,
            ast,
            names: IndexMap::new(),
            uses: Vec::new(),
            related: Vec::new(),
        });
        if std || self.modules[module.0 as usize].folder.is_some() {
            self.by_key.insert(key, module);
        }
        let uses: Vec<ast::Use> = self
            .ast(module)
            .items
            .iter()
            .filter_map(|item| match &item.kind {
                ast::ItemKind::Use(used) => Some(used.clone()),
                _ => None,
            })
            .collect();
        for used in uses {
            if let Some((target, _)) = self.resolve_use(module, &used, Some(diagnostics)) {
                self.modules[module.0 as usize]
                    .uses
                    .push((target, used.path.span));
            }
        }
        module
    }

    /// The module of a `use`, and the item's name if the path goes on to one. Loads it if `diagnostics` is given.
    fn resolve_use(
        &mut self,
        module: Module,
        used: &ast::Use,
        diagnostics: Option<&mut Diagnostics>,
    ) -> Option<(Module, Option<ast::Ident>)> {
        let segments = &used.path.segments;
        let mut scratch = Diagnostics::default();
        let diagnostics = diagnostics.unwrap_or(&mut scratch);
        let not_found = |d: &mut Diagnostics, text: String, help: Option<String>| {
            let mut diagnostic = Diagnostic::error(codes::E0104, used.path.span, text);
            diagnostic.help.extend(help);
            d.push(diagnostic);
            None
        };
        if segments[0].name == "std" {
            let Some(name) = segments.get(1) else {
                return not_found(
                    diagnostics,
                    "`std` is a folder of modules, not a module".into(),
                    Some(std_help()),
                );
            };
            let Some((stem, text)) = STD.iter().find(|(stem, _)| *stem == name.name) else {
                return not_found(
                    diagnostics,
                    format!("the standard library has no module `{}`", name.name),
                    Some(std_help()),
                );
            };
            let key = PathBuf::from(format!("std/{stem}.tess"));
            let target = match self.by_key.get(&key) {
                Some(&target) => target,
                None => self.add(
                    format!("std/{stem}.tess"),
                    (*text).to_owned(),
                    None,
                    None,
                    true,
                    diagnostics,
                ),
            };
            return match &segments[2..] {
                [] => Some((target, None)),
                [item] => Some((target, Some(item.clone()))),
                _ => not_found(
                    diagnostics,
                    "a path into `std` has one module and one item".into(),
                    None,
                ),
            };
        }
        let source = &self.modules[module.0 as usize];
        let Some(folder) = source.folder.clone() else {
            return not_found(
                diagnostics,
                format!("there is no module `{}` here", segments[0].name),
                Some("only `std` can be used from a text that is no file".into()),
            );
        };
        let root = source.root.clone().unwrap_or_else(|| folder.clone());
        let mut parts: Vec<&str> = segments.iter().map(|s| s.name.as_str()).collect();
        let mut item = None;
        loop {
            let mut path = folder.clone();
            path.extend(&parts);
            path.set_extension("tess");
            if path.is_file() {
                let path = path.canonicalize().unwrap_or(path);
                let target = self.load_file(&path, &root, diagnostics)?;
                return Some((target, item));
            }
            if item.is_some() || parts.len() == 1 || used.names.is_some() {
                let file: PathBuf = segments.iter().map(|s| s.name.as_str()).collect();
                return not_found(
                    diagnostics,
                    format!(
                        "`{}` is no file beside this one",
                        file.with_extension("tess").display()
                    ),
                    None,
                );
            }
            item = Some(segments[parts.len() - 1].clone());
            parts.pop();
        }
    }

    /// Reads the files beside `module` that hold schedules or bodies of its kernels.
    fn load_related(&mut self, module: Module, diagnostics: &mut Diagnostics) {
        let source = &self.modules[module.0 as usize];
        let (Some(folder), Some(root)) = (source.folder.clone(), source.root.clone()) else {
            return;
        };
        if !source.related.is_empty() {
            return;
        }
        let kernels: Vec<String> = declared_kernels(&source.ast);
        // Schedules and bodies here of kernels that are declared elsewhere.
        let mut orphans: Vec<String> = source
            .ast
            .items
            .iter()
            .filter_map(|item| attached(&item.kind))
            .filter(|name| !kernels.contains(name))
            .collect();
        let Ok(entries) = fs::read_dir(&folder) else {
            return;
        };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|e| Some(e.ok()?.path()))
            .filter(|p| p.extension().is_some_and(|e| e == "tess"))
            .collect();
        paths.sort();
        for path in paths {
            if self.by_key.get(&path) == Some(&module) {
                continue;
            }
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            let mentions = kernels.iter().chain(&orphans).any(|k| {
                ["schedule", "kernel"].iter().any(|word| {
                    text.match_indices(word).any(|(at, _)| {
                        text[at + word.len()..]
                            .trim_start()
                            .strip_prefix(k.as_str())
                            .is_some_and(|rest| {
                                !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                            })
                    })
                })
            });
            if !mentions {
                continue;
            }
            // What only mentions the kernels is no business of this module: it is looked at apart first.
            let mut apart = SourceMap::default();
            let file = apart.add("", text);
            let ast = syntax::parse(&apart, file, &mut Diagnostics::default());
            let own = declared_kernels(&ast);
            let belongs = ast
                .items
                .iter()
                .filter_map(|item| attached(&item.kind))
                .any(|name| kernels.contains(&name) && !own.contains(&name));
            let declares = own.iter().any(|name| orphans.contains(name));
            if !belongs && !declares {
                continue;
            }
            orphans.retain(|name| !own.contains(name));
            let Some(other) = self.load_file(&path, &root, diagnostics) else {
                continue;
            };
            if belongs && other != module {
                self.modules[module.0 as usize].related.push(other);
            }
        }
    }

    fn report_circles(&self, before: usize, diagnostics: &mut Diagnostics) {
        let mut graph = DiGraph::<Module, Span>::new();
        let nodes: Vec<_> = (0..self.modules.len())
            .map(|i| graph.add_node(Module(i as u32)))
            .collect();
        for (i, source) in self.modules.iter().enumerate() {
            for (target, span) in &source.uses {
                graph.add_edge(nodes[i], nodes[target.0 as usize], *span);
            }
        }
        let mut circles: Vec<Vec<Module>> = tarjan_scc(&graph)
            .into_iter()
            .map(|c| {
                let mut c: Vec<Module> = c.into_iter().map(|n| graph[n]).collect();
                c.sort();
                c
            })
            .filter(|c| {
                c.len() > 1
                    || self.modules[c[0].0 as usize]
                        .uses
                        .iter()
                        .any(|(m, _)| *m == c[0])
            })
            .filter(|c| c.iter().any(|m| m.0 as usize >= before))
            .collect();
        circles.sort();
        for circle in circles {
            let mut edges = circle.iter().flat_map(|m| {
                self.modules[m.0 as usize]
                    .uses
                    .iter()
                    .filter(|(target, _)| circle.contains(target))
                    .map(|(_, span)| *span)
            });
            let Some(first) = edges.next() else { continue };
            let mut diagnostic = Diagnostic::error(
                codes::E0105,
                first,
                "these modules use each other in a circle",
            )
            .at("here it begins");
            for span in edges {
                diagnostic = diagnostic.label(span, "and goes on here");
            }
            diagnostics.push(diagnostic.help("move what both need into a module of its own"));
        }
    }

    /// Fills in what the names of `module` mean.
    fn bind_names(&mut self, module: Module, diagnostics: &mut Diagnostics) {
        let mut names: IndexMap<String, (Def, Span)> = IndexMap::new();
        let mut bind = |name: &ast::Ident, def: Def, d: &mut Diagnostics| {
            if name.name.parse::<tesserine_set::DType>().is_ok() {
                d.push(Diagnostic::error(
                    codes::E0103,
                    name.span,
                    format!("`{}` is an element type of the language", name.name),
                ));
                return;
            }
            if let Some((_, first)) = names.get(&name.name) {
                d.push(
                    Diagnostic::error(
                        codes::E0103,
                        name.span,
                        format!("`{}` is defined twice", name.name),
                    )
                    .label(*first, "first here"),
                );
            } else {
                names.insert(name.name.clone(), (def, name.span));
            }
        };
        let ast = self.ast(module).clone();
        for (index, item) in ast.items.iter().enumerate() {
            if let Some(name) = item_name(&item.kind) {
                bind(name, Def::Item(module, index), diagnostics);
            }
        }
        for item in &ast.items {
            let ast::ItemKind::Use(used) = &item.kind else {
                continue;
            };
            let Some((target, single)) = self.resolve_use(module, used, None) else {
                continue;
            };
            let wanted = match (&used.names, &single) {
                (Some(names), None) => names.clone(),
                (Some(names), Some(inner)) => {
                    let _ = names;
                    diagnostics.push(Diagnostic::error(
                        codes::E0104,
                        inner.span,
                        format!("`{}` is no module", inner.name),
                    ));
                    continue;
                }
                (None, Some(name)) => vec![name.clone()],
                (None, None) => {
                    let last = used.path.segments.last().expect("a path has a segment");
                    bind(last, Def::Module(target), diagnostics);
                    continue;
                }
            };
            for name in wanted {
                let found =
                    self.ast(target).items.iter().position(|item| {
                        item_name(&item.kind).is_some_and(|n| n.name == name.name)
                    });
                match found {
                    Some(index) => bind(&name, Def::Item(target, index), diagnostics),
                    None => {
                        let file = self
                            .sources
                            .get(self.file(target))
                            .map_or("", |f| f.name.as_str());
                        let mut diagnostic = Diagnostic::error(
                            codes::E0104,
                            name.span,
                            format!("`{file}` has no item `{}`", name.name),
                        );
                        let candidates: Vec<String> = self
                            .ast(target)
                            .items
                            .iter()
                            .filter_map(|i| Some(item_name(&i.kind)?.name.clone()))
                            .collect();
                        if let Some(near) =
                            nearest(&name.name, candidates.iter().map(String::as_str))
                        {
                            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
                        }
                        diagnostics.push(diagnostic);
                    }
                }
            }
        }
        self.modules[module.0 as usize].names =
            names.into_iter().map(|(n, (d, _))| (n, d)).collect();
    }
}

/// The name that an item gives its module. Schedules, and bodies for single targets, have none of their own.
pub(crate) fn item_name(kind: &ast::ItemKind) -> Option<&ast::Ident> {
    Some(match kind {
        ast::ItemKind::Const(i) => &i.name,
        ast::ItemKind::Struct(i) => &i.name,
        ast::ItemKind::Interface(i) => &i.name,
        ast::ItemKind::Variant(i) => &i.name,
        ast::ItemKind::Layout(i) => &i.name,
        ast::ItemKind::Fn(i) => &i.name,
        ast::ItemKind::Kernel(i) if i.signature.is_some() => &i.name,
        ast::ItemKind::Op(i) => &i.name,
        ast::ItemKind::Test(i) => &i.name,
        _ => return None,
    })
}

fn declared_kernels(ast: &ast::File) -> Vec<String> {
    ast.items
        .iter()
        .filter_map(|item| match &item.kind {
            ast::ItemKind::Kernel(k) if k.signature.is_some() => Some(k.name.name.clone()),
            _ => None,
        })
        .collect()
}

/// The kernel that a schedule, or a body for single targets, is of.
fn attached(kind: &ast::ItemKind) -> Option<String> {
    match kind {
        ast::ItemKind::Schedule(s) => Some(s.kernel.segments.last()?.name.clone()),
        ast::ItemKind::Kernel(k) if k.signature.is_none() => Some(k.name.name.clone()),
        _ => None,
    }
}

fn std_help() -> String {
    let names: Vec<String> = STD
        .iter()
        .map(|(stem, _)| format!("`std::{stem}`"))
        .collect();
    format!("there are {}", names.join(" and "))
}

fn unreadable(path: &Path, why: &str) -> Diagnostic {
    Diagnostic::error(
        codes::E0106,
        Span::NONE,
        format!("`{}` cannot be read: {why}", path.display()),
    )
}

/// `path` relative to `root`, with `/` between the parts.
fn shown_name(path: &Path, root: &Path) -> String {
    let relative = path
        .strip_prefix(root)
        .unwrap_or_else(|_| Path::new(path.file_name().unwrap_or_default()));
    relative
        .components()
        .filter_map(|c| match c {
            Component::Normal(part) => Some(part.to_string_lossy()),
            _ => None,
        })
        .collect::<Vec<_>>()
        .join("/")
}

/// The candidate that differs least from `name`, if it differs little.
pub(crate) fn nearest<'n>(
    name: &str,
    candidates: impl Iterator<Item = &'n str>,
) -> Option<&'n str> {
    let limit = match name.chars().count() {
        0..=4 => 1,
        5..=7 => 2,
        _ => 3,
    };
    let length = name.chars().count();
    candidates
        .filter(|c| *c != name && c.chars().count().abs_diff(length) <= limit)
        .map(|c| (distance(name, c), c))
        .filter(|(d, c)| *d <= limit && *d < c.chars().count())
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Edits that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = replace.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
