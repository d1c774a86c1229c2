//! The grid of an instance: its axes, clusters and order.

use super::*;

impl<'a> Maker<'_, 'a> {
    pub(super) fn axes(&mut self) -> Eval<Vec<GridAxis>> {
        let grid = &self.source.grid;
        if grid.axes.len() > 16 {
            return self
                .ev
                .error(codes::E0505, grid.span, "a grid has at most 16 axes");
        }
        let mut axes: Vec<GridAxis> = Vec::new();
        self.ev.cluster_axes = 0;
        let mut cluster = 1;
        for (i, axis) in grid.axes.iter().enumerate() {
            if axes.iter().any(|a| a.name == axis.name.name) {
                return self.ev.error(
                    codes::E0103,
                    axis.name.span,
                    format!("`{}` is declared twice", axis.name.name),
                );
            }
            let extent =
                self.ev
                    .host(&axis.extent, false, codes::E0505, "the extent of the grid")?;
            if extent.as_int().is_some_and(|e| e < 1) {
                return self.ev.error(
                    codes::E0505,
                    axis.extent.span,
                    "this axis of the grid has no blocks",
                );
            }
            if axis.cluster {
                cluster = self.cluster_axis(axis, &extent, cluster)?;
            }
            let value = match extent.as_int() {
                Some(1) => Value::Int(0),
                _ => Value::Symbol(Symbol::Grid(i as u32)),
            };
            if axis.cluster {
                self.ev.cluster_axes |= 1 << i;
            }
            axes.push(GridAxis {
                cluster: axis.cluster,
                ..GridAxis::new(&axis.name.name, extent)
            });
            // An index of the grid hides a dimension or parameter of its name.
            self.bind(&axis.name.name, value, axis.name.span);
        }
        Ok(axes)
    }

    /// Checks an axis of a cluster; `others` is the size of the cluster without it. Gives the size with it.
    pub(super) fn cluster_axis(
        &mut self,
        axis: &ast::Axis,
        extent: &Formula,
        others: i64,
    ) -> Eval<i64> {
        let span = axis.extent.span;
        let Some(size) = extent.as_int() else {
            return self.ev.fail(
                Diagnostic::error(
                    codes::E0505,
                    span,
                    "the size of a cluster is a constant, and this is known at the launch only",
                )
                .help("take it from a compile-time parameter: `S: int = 4`"),
            );
        };
        if let Some(until) = &axis.until {
            return self.ev.error(
                codes::E0505,
                until.span,
                "an axis of a cluster has no `until`: its blocks run together",
            );
        }
        let target = self.ev.target;
        let most = i64::from(target.max_cluster());
        let whole = others.saturating_mul(size);
        if whole > most {
            let why = match most {
                1 => format!(
                    "{} has no clusters, and this asks for one of {size} blocks",
                    target.name()
                ),
                _ => format!("a cluster has at most {most} blocks, and this one has {whole}"),
            };
            return self.ev.fail(
                Diagnostic::error(codes::E0606, span, why)
                    .note("clusters of more than one block are of sm_90a to sm_110a")
                    .help("let a schedule give the size: 1 where there are none"),
            );
        }
        Ok(whole)
    }

    /// What follows `order`. Axes that are walked downwards are marked.
    pub(super) fn order(&mut self, axes: &mut [GridAxis]) -> Eval<Order> {
        let mut order = Order::Rows;
        for expr in &self.source.grid.order {
            let ast::ExprKind::Call { callee, args } = &expr.kind else {
                return self.ev.fail(no_order(expr.span));
            };
            let [ast::Arg { name: None, value }] = &args[..] else {
                return self.ev.fail(no_order(expr.span));
            };
            match bare(callee).map(|n| n.name.as_str()) {
                Some("grouped") => {}
                Some("rev") => {
                    let named = bare(value).map(|n| n.name.as_str());
                    let axis = axes.iter_mut().find(|a| Some(a.name.as_str()) == named);
                    let Some(axis) = axis.filter(|a| !a.cluster) else {
                        return self.ev.error(
                            codes::E0505,
                            value.span,
                            "`rev` names an axis of the grid that is no cluster's",
                        );
                    };
                    if std::mem::replace(&mut axis.rev, true) {
                        return self.ev.error(
                            codes::E0505,
                            expr.span,
                            "this axis is turned round twice",
                        );
                    }
                    continue;
                }
                _ => return self.ev.fail(no_order(expr.span)),
            }
            if order != Order::Rows {
                return self
                    .ev
                    .error(codes::E0505, expr.span, "the grid is grouped twice");
            }
            let group = self.ev.const_int(value, "the length of a group")?;
            if !(1..=1 << 16).contains(&group) {
                return self.ev.error(
                    codes::E0505,
                    value.span,
                    format!("a group has from 1 to 65536 indices, and this is {group}"),
                );
            }
            order = Order::Grouped {
                group: group as u32,
            };
        }
        Ok(order)
    }
}

fn no_order(span: Span) -> Diagnostic {
    Diagnostic::error(codes::E0505, span, "this is no order of a grid").help(
        "write `order grouped(8)`: the first axis is walked within groups of 8 of its indices",
    )
}
