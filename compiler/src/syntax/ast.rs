//! The syntax tree: what was written, before any name is looked up.
//!
//! Invariants: every node has the span of the text that it was parsed from; nothing is desugared (the printer gives the
//! program back); `Error` nodes stand where recovery skipped text, and every one of them has a diagnostic.

use tesserine_set::DType;

use crate::span::Span;

/// A name as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Ident {
    pub name: String,
    pub span: Span,
}

/// `a::b::c`.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    pub segments: Vec<Ident>,
    pub span: Span,
}

impl Path {
    /// The name, if the path has one segment.
    pub fn as_ident(&self) -> Option<&Ident> {
        match &self.segments[..] {
            [ident] => Some(ident),
            _ => None,
        }
    }

    /// The element type that the path names, if it has one segment and that is one.
    pub fn as_dtype(&self) -> Option<DType> {
        self.as_ident()?.name.parse().ok()
    }
}

/// A source file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    /// Its `//!` lines, joined.
    pub doc: Option<String>,
    pub items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub kind: ItemKind,
    /// Its `///` lines, joined.
    pub doc: Option<String>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ItemKind {
    Use(Use),
    Const(Const),
    Struct(Struct),
    Interface(Interface),
    Variant(Variant),
    Layout(Layout),
    Fn(Fn),
    Kernel(Kernel),
    Schedule(Schedule),
    Op(Op),
    Test(Test),
    Error,
}

/// `use a::b::{c, d};`
#[derive(Clone, Debug, PartialEq)]
pub struct Use {
    pub path: Path,
    /// The braces' names; `None` without braces.
    pub names: Option<Vec<Ident>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Const {
    pub name: Ident,
    pub ty: Option<Type>,
    pub value: Expr,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Struct {
    pub name: Ident,
    pub cparams: Vec<CParam>,
    pub fields: Vec<Field>,
}

/// A field of a struct or variant: `name?: type`.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub name: Ident,
    pub optional: bool,
    pub ty: Option<Type>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    pub name: Ident,
    pub fns: Vec<Fn>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    pub name: Ident,
    pub cparams: Vec<CParam>,
    /// The interface that it implements.
    pub interface: Option<Path>,
    pub fields: Vec<Field>,
    pub fns: Vec<Fn>,
}

/// `layout name(r, c) of [m, n] size S = offset;`
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub name: Ident,
    pub indices: Vec<Ident>,
    pub dims: Vec<Dim>,
    pub size: Expr,
    pub offset: Expr,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Fn {
    pub name: Ident,
    /// Its `///` lines, joined: also of a function of an interface or variant.
    pub doc: Option<String>,
    pub cparams: Vec<CParam>,
    pub params: Vec<Param>,
    pub ret: Option<Type>,
    pub body: FnBody,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FnBody {
    Block(Block),
    Expr(Box<Expr>),
    /// `;`: an interface's function without a default.
    None,
}

/// A compile-time parameter: `T: dtype in {f16, bf16} = f16`.
#[derive(Clone, Debug, PartialEq)]
pub struct CParam {
    pub name: Ident,
    pub kind: CKind,
    pub allowed: Option<Vec<Expr>>,
    pub default: Option<CValue>,
    pub span: Span,
}

/// What a compile-time parameter is.
#[derive(Clone, Debug, PartialEq)]
pub enum CKind {
    /// `dtype`, `int`, `bool`, or an interface's name.
    Path(Path),
    Fn(Span),
}

/// A compile-time argument's value.
#[derive(Clone, Debug, PartialEq)]
pub enum CValue {
    Expr(Expr),
    /// `Bias<bf16>`.
    Applied {
        path: Path,
        cargs: Vec<CArg>,
        span: Span,
    },
}

/// `V` or `NAME = V` between `<` and `>`.
#[derive(Clone, Debug, PartialEq)]
pub struct CArg {
    pub name: Option<Ident>,
    pub value: CValue,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub name: Ident,
    pub optional: bool,
    pub ty: Option<Type>,
    pub default: Option<Expr>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    pub kind: TypeKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TypeKind {
    View {
        mode: ViewMode,
        elem: Path,
        dims: Vec<Dim>,
        layout: Option<Path>,
        facts: Vec<ViewFact>,
    },
    Tile {
        elem: Path,
        dims: Vec<Dim>,
    },
    Accum {
        elem: Path,
        dims: Vec<Dim>,
    },
    /// A scalar type, a struct, a variant, a compile-time parameter.
    Path {
        path: Path,
        cargs: Vec<CArg>,
    },
    Tuple(Vec<Type>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewMode {
    /// `view`
    Read,
    /// `out view`
    Out,
    /// `mut view`
    Mut,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ViewFact {
    Sorted(Span),
    Distinct(Span),
    Align(u64, Span),
}

/// A dimension in a type: an expression, perhaps `strided`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dim {
    pub expr: Expr,
    pub strided: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    pub name: Ident,
    /// `None` for a target's own body of a kernel declared elsewhere.
    pub signature: Option<Signature>,
    pub targets: Option<Vec<Target>>,
    pub wheres: Vec<Expr>,
    pub grid: Grid,
    pub body: Block,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    pub cparams: Vec<CParam>,
    pub params: Vec<Param>,
}

/// `sm_80` or `sm_80 ..= sm_89`.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    One(Ident),
    Range(Ident, Ident),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    pub persistent: bool,
    pub dynamic: bool,
    pub axes: Vec<Axis>,
    pub order: Vec<Expr>,
    pub span: Span,
}

/// `name in extent until limit cluster`.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub name: Ident,
    pub extent: Expr,
    pub until: Option<Expr>,
    pub cluster: bool,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub kernel: Path,
    pub cargs: Vec<CArg>,
    pub entries: Vec<ScheduleEntry>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleEntry {
    Targets {
        targets: Vec<Target>,
        values: Vec<KeyValue>,
        /// Which combinations of listed values there are.
        condition: Option<Expr>,
        span: Span,
    },
    Tune {
        values: Vec<KeyValue>,
        condition: Option<Expr>,
        span: Span,
    },
    Specialize {
        facts: Vec<Expr>,
        span: Span,
    },
}

/// `key: value` or `loop.stages: value`.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyValue {
    pub key: Ident,
    pub field: Option<Ident>,
    pub value: Expr,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    pub name: Ident,
    pub cparams: Vec<CParam>,
    pub params: Vec<Param>,
    pub wheres: Vec<Expr>,
    pub body: Block,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    pub name: Ident,
    pub body: Block,
}

/// Statements, and perhaps a value at the end. A closing `if`/`else` is parsed as a statement: sema decides whether its
/// arms have values.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub stmts: Vec<Stmt>,
    pub value: Option<Box<Expr>>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    pub kind: StmtKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    Let {
        pat: Pat,
        ty: Option<Type>,
        value: Expr,
    },
    Expr(Expr),
    Assign {
        target: Expr,
        op: AssignOp,
        value: Expr,
        scatter: bool,
    },
    If(If),
    For(For),
    While {
        cond: Expr,
        body: Block,
    },
    Break,
    Continue,
    Return(Option<Expr>),
    Assert {
        constant: bool,
        args: Vec<Arg>,
    },
    Require(Vec<Ident>),
    Workspace {
        name: Ident,
        ty: Type,
        fill: Option<Expr>,
    },
    Launch {
        kernel: Path,
        cargs: Vec<CArg>,
        args: Vec<Arg>,
    },
    Call {
        scatter: bool,
        kernel: Path,
        cargs: Vec<CArg>,
        args: Vec<Arg>,
        at: Vec<Expr>,
    },
    Channel {
        name: Ident,
        count: Option<Expr>,
        payload: Type,
        depth: Expr,
        over: Option<Ident>,
        across: Option<Ident>,
    },
    Release {
        channel: Channel,
        lag: Option<u64>,
    },
    Pingpong(Pingpong),
    Put {
        channel: Channel,
        slot: Option<Expr>,
        at: Option<Vec<Expr>>,
        values: Vec<Expr>,
    },
    Roles(Vec<Role>),
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignOp {
    Set,
    Add,
    Sub,
    Mul,
    Or,
    And,
}

#[derive(Clone, Debug, PartialEq)]
pub struct For {
    pub label: Option<Ident>,
    pub constant: bool,
    pub index: Ident,
    /// `part` of `for (j, part) in …`.
    pub part: Option<Ident>,
    /// `lo..x..y..hi`: two bounds or more.
    pub bounds: Vec<Expr>,
    pub rev: bool,
    pub step: Option<Expr>,
    pub body: Block,
}

#[derive(Clone, Debug, PartialEq)]
pub struct If {
    pub constant: bool,
    pub cond: Box<Expr>,
    pub then: Block,
    pub els: Option<Box<Else>>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Else {
    If(If),
    Block(Block),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pingpong {
    pub cond: Option<Box<Expr>>,
    pub body: Block,
}

/// `name` or `name[index]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    pub name: Ident,
    pub index: Option<Box<Expr>>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Role {
    pub name: Ident,
    pub size: Expr,
    pub unit: RoleUnit,
    pub modifiers: Vec<RoleModifier>,
    pub body: Block,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleUnit {
    Warp,
    Warpgroup,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RoleModifier {
    Regs(Expr),
    Split(u64),
    Replicate { index: Ident, count: Expr },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pat {
    pub kind: PatKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PatKind {
    Bind { mutable: bool, name: Ident },
    Wild,
    Tuple(Vec<Pat>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A literal; one out of range is reported by the parser and stands as 0.
    Int(u64),
    Float(f64),
    Bool(bool),
    Str(String),
    Inf,
    Nan,
    Path(Path),
    /// `f::<A, B>`.
    Applied {
        path: Path,
        cargs: Vec<CArg>,
    },
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    /// A parenthesised expression: kept, so that the printer gives the source back.
    Paren(Box<Expr>),
    Zeros {
        elem: Path,
        dims: Vec<Dim>,
    },
    Iota {
        elem: Path,
        dims: Vec<Dim>,
    },
    Full {
        elem: Path,
        dims: Vec<Dim>,
        value: Box<Expr>,
    },
    Bitcast {
        elem: Path,
        value: Box<Expr>,
    },
    Ptx {
        args: Vec<Arg>,
        ty: Path,
        otherwise: Box<Expr>,
    },
    Unary {
        op: UnaryOp,
        value: Box<Expr>,
    },
    Binary {
        op: BinaryOp,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Cast {
        value: Box<Expr>,
        ty: Path,
    },
    Await {
        value: Box<Expr>,
        lag: Option<u64>,
    },
    Get(Channel),
    View(Box<Expr>),
    Index {
        base: Box<Expr>,
        indices: Vec<Index>,
    },
    Field {
        base: Box<Expr>,
        name: Ident,
    },
    /// `x.0`
    Element {
        base: Box<Expr>,
        index: u64,
    },
    Call {
        callee: Box<Expr>,
        args: Vec<Arg>,
    },
    If(If),
    Pingpong(Pingpong),
    Error,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Arg {
    pub name: Option<Ident>,
    pub value: Expr,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    pub kind: IndexKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum IndexKind {
    Expr(Expr),
    /// `_`
    NewAxis,
    /// `..`, `a..`, `..b`, `a..b`
    Range {
        start: Option<Expr>,
        end: Option<Expr>,
    },
    /// `start +: len from lowest until limit`
    Slice {
        start: Expr,
        len: Expr,
        from: Option<Expr>,
        until: Option<Expr>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    Neg,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    OrElse,
    AndAlso,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    BitOr,
    BitXor,
    BitAnd,
    Shl,
    Shr,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

impl BinaryOp {
    pub fn is_comparison(self) -> bool {
        matches!(
            self,
            BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge
        )
    }

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            BinaryOp::OrElse => "||",
            BinaryOp::AndAlso => "&&",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::Gt => ">",
            BinaryOp::Ge => ">=",
            BinaryOp::BitOr => "|",
            BinaryOp::BitXor => "^",
            BinaryOp::BitAnd => "&",
            BinaryOp::Shl => "<<",
            BinaryOp::Shr => ">>",
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::Rem => "%",
        }
    }
}

impl std::fmt::Display for BinaryOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AssignOp {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            AssignOp::Set => "=",
            AssignOp::Add => "+=",
            AssignOp::Sub => "-=",
            AssignOp::Mul => "*=",
            AssignOp::Or => "|=",
            AssignOp::And => "&=",
        }
    }
}
