use std::cmp::Ordering;
use std::fmt::Display;

#[derive(Debug, Default)]
pub struct Tree<T> {
    root: Option<Box<Node<T>>>,
}

#[derive(Debug)]
struct Node<T> {
    value: T,
    left: Option<Box<Node<T>>>,
    right: Option<Box<Node<T>>>,
}

impl<T: Ord + Display> Tree<T> {
    pub fn insert(&mut self, value: T) -> bool {
        let mut slot = &mut self.root;
        while let Some(node) = slot {
            slot = match value.cmp(&node.value) {
                Ordering::Less => &mut node.left,
                Ordering::Greater => &mut node.right,
                Ordering::Equal => return false,
            };
        }
        *slot = Some(Box::new(Node { value, left: None, right: None }));
        true
    }
}

fn main() {
    let mut tree = Tree { root: None };
    for word in ["pear", "apple", "plum"] {
        println!("{} {}", word, tree.insert(word));
    }
}
