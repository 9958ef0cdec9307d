//! Makes the graph of a trace from operations and dependencies, rank by rank in any order. It
//! bounds what a file can make the program allocate; the readers check everything else.

use super::{Goal, Operation};
use crate::error::TextError;
use crate::script::Limits;

/// A trace in the making. Operations of a rank are numbered from 0.
pub(crate) struct Builder {
    limits: Limits,
    /// The operations of each rank that was opened.
    blocks: Vec<Option<Block>>,
    /// Operations and dependencies so far.
    total: usize,
}

#[derive(Default)]
struct Block {
    operations: Vec<Operation>,
    lines: Vec<u32>,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    later: u32,
    earlier: u32,
    /// Whether the earlier operation must be done, or only have started.
    done: bool,
}

impl Builder {
    /// A trace without operations.
    pub(crate) fn new(ranks: u32, limits: Limits) -> Result<Self, String> {
        if ranks == 0 || ranks > limits.ranks {
            return Err(format!("{ranks} ranks: between 1 and {}", limits.ranks));
        }
        let mut blocks = Vec::new();
        blocks.resize_with(ranks as usize, || None);
        Ok(Self {
            limits,
            blocks,
            total: 0,
        })
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Opens a rank, which must be below [`Self::ranks`]. Fails if it was opened before.
    pub(crate) fn open(&mut self, rank: u32) -> Result<(), String> {
        match &mut self.blocks[rank as usize] {
            Some(_) => Err(format!("rank {rank} is given twice")),
            closed => {
                *closed = Some(Block::default());
                Ok(())
            }
        }
    }

    /// Appends an operation to a rank and returns its number there. `line` is its line in a text.
    pub(crate) fn add(
        &mut self,
        rank: u32,
        operation: Operation,
        line: Option<u32>,
    ) -> Result<u32, String> {
        self.count_one()?;
        let block = self.blocks[rank as usize].get_or_insert_default();
        block.operations.push(operation);
        block.lines.extend(line);
        Ok(block.operations.len() as u32 - 1)
    }

    /// Lets operation `later` of a rank wait until operation `earlier` is done, or has started.
    pub(crate) fn depend(
        &mut self,
        rank: u32,
        later: u32,
        earlier: u32,
        done: bool,
    ) -> Result<(), String> {
        self.count_one()?;
        let block = self.blocks[rank as usize].get_or_insert_default();
        block.dependencies.push(Dependency {
            later,
            earlier,
            done,
        });
        Ok(())
    }

    fn count_one(&mut self) -> Result<(), String> {
        self.total += 1;
        if self.total > self.limits.operations.min(u32::MAX as usize / 4) {
            return Err(format!("more than {} operations", self.limits.operations));
        }
        Ok(())
    }

    /// The finished trace. Fails if its dependencies have a cycle.
    pub(crate) fn finish(self) -> Result<Goal, TextError> {
        let (mut operations, mut lines, mut first) = (Vec::new(), Vec::new(), vec![0]);
        let mut dependencies: Vec<Dependency> = Vec::new();
        for block in self.blocks {
            let base = operations.len() as u32;
            let block = block.unwrap_or_default();
            operations.extend(block.operations);
            lines.extend(block.lines);
            dependencies.extend(block.dependencies.into_iter().map(|d| Dependency {
                later: d.later + base,
                earlier: d.earlier + base,
                ..d
            }));
            first.push(operations.len() as u32);
        }
        let mut waits = vec![0u32; operations.len()];
        let mut first_successor = vec![0u32; operations.len() + 1];
        for dependency in &dependencies {
            waits[dependency.later as usize] += 1;
            first_successor[dependency.earlier as usize + 1] += 1;
        }
        for i in 1..first_successor.len() {
            first_successor[i] += first_successor[i - 1];
        }
        let mut fill = first_successor.clone();
        let mut successors = vec![(0, false); dependencies.len()];
        for dependency in &dependencies {
            let at = &mut fill[dependency.earlier as usize];
            successors[*at as usize] = (dependency.later, dependency.done);
            *at += 1;
        }
        let goal = Goal {
            operations,
            lines,
            first,
            successors,
            first_successor,
            waits,
            hosts: None,
        };
        goal.refuse_cycles()?;
        Ok(goal)
    }
}
