//! Where a picture of a network shows each link. A picture has panels, such as the links in one
//! direction of a torus, and a panel is a matrix. The topologies choose the panels; other programs
//! draw them.

/// The place of a link in a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of the panel: the kind of the link and its direction.
    pub panel: String,
    /// Row in the panel, from the top.
    pub row: u32,
    /// Column in the panel, from the left.
    pub column: u32,
}

/// Length from which a line of nodes is folded into rows.
const FOLD: u32 = 64;

impl Place {
    /// The place of a node in a grid: x to the right and y downwards. The planes of further
    /// dimensions lie side by side. A long line is folded into rows.
    pub(super) fn in_grid(panel: String, dims: &[u32], node: u32) -> Self {
        match *dims {
            [n] if n > FOLD => {
                let width = square_side(n);
                Self {
                    panel,
                    row: node / width,
                    column: node % width,
                }
            }
            [_] => Self {
                panel,
                row: 0,
                column: node,
            },
            _ => {
                let (nx, ny) = (dims[0], dims[1]);
                let planes = dims[2..].iter().product();
                let plane = node / (nx * ny);
                Self::in_tile(panel, plane, planes, [ny, nx], node / nx % ny, node % nx)
            }
        }
    }

    /// The place of a cell in one of `tiles` equal matrices of `[rows, columns]`, which are
    /// arranged in a square with an empty line between them.
    pub(super) fn in_tile(
        panel: String,
        tile: u32,
        tiles: u32,
        [rows, columns]: [u32; 2],
        row: u32,
        column: u32,
    ) -> Self {
        let side = square_side(tiles);
        Self {
            panel,
            row: tile / side * (rows + 1) + row,
            column: tile % side * (columns + 1) + column,
        }
    }
}

/// Side of the smallest square that holds `n` cells.
fn square_side(n: u32) -> u32 {
    f64::from(n).sqrt().ceil().max(1.0) as u32
}
