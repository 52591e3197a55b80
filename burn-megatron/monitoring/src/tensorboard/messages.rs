//! The messages of TensorFlow's `event.proto`, `summary.proto`, `histogram.proto` and `tensor.proto`.

#[derive(Clone, PartialEq, prost::Message)]
pub struct Event {
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    #[prost(int64, tag = "2")]
    pub step: i64,
    #[prost(oneof = "What", tags = "3, 5")]
    pub what: Option<What>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub value: Vec<Value>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// Written even if it is empty.
    #[prost(string, optional, tag = "1")]
    pub tag: Option<String>,
    #[prost(message, optional, tag = "9")]
    pub metadata: Option<Metadata>,
    #[prost(oneof = "Kind", tags = "2, 5, 8")]
    pub kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    #[prost(float, tag = "2")]
    Simple(f32),
    #[prost(message, tag = "5")]
    Histogram(Histogram),
    #[prost(message, tag = "8")]
    Tensor(Tensor),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Metadata {
    #[prost(message, optional, tag = "1")]
    pub plugin: Option<Plugin>,
    #[prost(int32, tag = "4")]
    pub data_class: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Plugin {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Histogram {
    /// Written if it is −0, as `max`.
    #[prost(double, optional, tag = "1")]
    pub min: Option<f64>,
    #[prost(double, optional, tag = "2")]
    pub max: Option<f64>,
    #[prost(double, tag = "3")]
    pub num: f64,
    #[prost(double, tag = "4")]
    pub sum: f64,
    #[prost(double, tag = "5")]
    pub sum_squares: f64,
    #[prost(double, repeated, tag = "6")]
    pub limits: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    pub counts: Vec<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Tensor {
    #[prost(int32, tag = "1")]
    pub dtype: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub strings: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Shape {
    #[prost(message, repeated, tag = "2")]
    pub dimensions: Vec<Dimension>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Dimension {
    #[prost(int64, tag = "1")]
    pub size: i64,
}
