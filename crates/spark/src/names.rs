//! Names that Spark and Kubernetes give meaning to. Nothing else in this crate spells them out.
