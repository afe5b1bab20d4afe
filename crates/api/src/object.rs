//! The envelope of every resource, and [`Resource`]: one object of any kind.
//!
//! `Object<S>` writes `kind`, `apiVersion`, `metadata`, `spec`, `status` in that order, as Calico writes them. The kind
//! is in the type, so it can be neither missing nor wrong in memory.

use crate::codec::{Extra, FieldName, InPlace, Ordered, is_default, to_go_json, to_value, without_place};
use crate::errors::{FieldErrors, FieldPath};
use crate::kind::{API_VERSION, Kind};
use crate::meta::ObjectMeta;
use crate::schema::{ObjectBuilder, Schema, check, for_kind, object, property};
use serde::de::{self, DeserializeOwned, MapAccess, Visitor};
use serde::ser::{Error as _, SerializeStruct as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::fmt::{self, Debug};

/// A kind's `spec`, and how Calico's typed client treats it.
pub trait Spec:
    Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Schema + Send + Sync + 'static
{
    /// The kind that has this spec.
    const KIND: Kind;

    /// The status; [`NoStatus`] for kinds without one, `Option<T>` where Calico omits an absent one, `T` where it
    /// always writes `"status":{}`.
    type Status: Clone
        + Debug
        + Default
        + PartialEq
        + Serialize
        + DeserializeOwned
        + Schema
        + StatusPart
        + Send
        + Sync;

    /// Fills in the typed client's defaults before a create or update (including labels it forces).
    fn set_defaults(&mut self, _metadata: &mut ObjectMeta) {}

    /// Fills in the typed client's defaults after a read.
    fn set_read_defaults(&mut self, _metadata: &mut ObjectMeta) {}

    /// Checks names and cross-field rules. Limits of single fields (types, enums, lengths, ranges, patterns) come from
    /// the schema and are checked before this is called; paths start with `metadata` or `spec`.
    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors);

    /// Checks for changes that are not allowed between two versions.
    fn validate_update(&self, _old: &Self, _errors: &mut FieldErrors) {}

    /// Checks a status beyond its schema.
    fn validate_status(_status: &Self::Status, _errors: &mut FieldErrors) {}

    /// Adds the parts of the schema that concern the whole object: rules over `self.metadata.name`, required top-level
    /// fields.
    fn object_schema(_schema: &mut Map<String, Value>) {}
}

/// Whether a status is written at all.
pub trait StatusPart {
    /// Whether Calico omits the field.
    fn is_absent(&self) -> bool {
        false
    }

    /// Whether the kind has a status in its schema.
    fn in_schema() -> bool {
        true
    }
}

impl<T> StatusPart for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

/// The status of a kind without one; keeps any existing value nevertheless.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NoStatus(Option<Value>);

impl StatusPart for NoStatus {
    fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    fn in_schema() -> bool {
        false
    }
}

impl Schema for NoStatus {
    fn schema() -> Map<String, Value> {
        Map::new()
    }
}

/// An object: metadata, spec and status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object<S: Spec> {
    /// Name, labels and the rest.
    pub metadata: ObjectMeta,
    /// The desired state.
    pub spec: S,
    /// The observed state.
    pub status: S::Status,
    /// Other top-level fields, which are kept.
    pub extra: Extra,
}

impl<S: Spec> Object<S> {
    /// Creates an object with this name (and namespace, for namespaced kinds; empty otherwise).
    #[must_use]
    pub fn new(namespace: &str, name: &str, spec: S) -> Self {
        let metadata =
            ObjectMeta { name: name.to_owned(), namespace: namespace.to_owned(), ..ObjectMeta::default() };
        Self { metadata, spec, status: S::Status::default(), extra: Extra::new() }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        S::KIND
    }

    /// Fills in the typed client's defaults before a write.
    pub fn set_defaults(&mut self) {
        self.spec.set_defaults(&mut self.metadata);
    }

    /// Fills in the typed client's defaults after a read.
    pub fn set_read_defaults(&mut self) {
        self.spec.set_read_defaults(&mut self.metadata);
    }

    /// Checks everything that can be checked without looking at other objects: the schema, names, cross-field rules.
    ///
    /// # Errors
    /// All errors, with paths.
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::new();
        match (to_value(&self.spec), property(for_kind(S::KIND), "spec")) {
            (Ok(value), Some(schema)) => check(schema, &value, &FieldPath::new("spec"), &mut errors),
            (Ok(_), None) => {}
            (Err(error), _) => errors.add(FieldPath::new("spec"), "", error.to_string()),
        }
        self.spec.validate(&self.metadata, &mut errors);
        S::validate_status(&self.status, &mut errors);
        errors.into_result()
    }
}

impl<S: Spec> Serialize for Object<S> {
    fn serialize<W: Serializer>(&self, serializer: W) -> Result<W::Ok, W::Error> {
        if self.extra.is_empty() {
            let mut out = serializer.serialize_struct(S::KIND.as_str(), 5)?;
            out.serialize_field("kind", S::KIND.as_str())?;
            out.serialize_field("apiVersion", API_VERSION)?;
            out.serialize_field("metadata", &self.metadata)?;
            out.serialize_field("spec", &self.spec)?;
            if self.status.is_absent() {
                out.skip_field("status")?;
            } else {
                out.serialize_field("status", &self.status)?;
            }
            return out.end();
        }
        use serde::ser::SerializeMap as _;
        let mut out = serializer.serialize_map(None)?;
        out.serialize_entry("kind", S::KIND.as_str())?;
        out.serialize_entry("apiVersion", API_VERSION)?;
        out.serialize_entry("metadata", &self.metadata)?;
        out.serialize_entry("spec", &self.spec)?;
        if !self.status.is_absent() {
            out.serialize_entry("status", &self.status)?;
        }
        for (name, value) in &self.extra {
            out.serialize_entry(name, value)?;
        }
        out.end()
    }
}

impl<'de, S: Spec> Deserialize<'de> for Object<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Self::default();
        deserializer.deserialize_map(Envelope(&mut object))?;
        Ok(object)
    }

    fn deserialize_in_place<D: Deserializer<'de>>(deserializer: D, place: &mut Self) -> Result<(), D::Error> {
        deserializer.deserialize_map(Envelope(place))
    }
}

/// Reads an object in place; see [`api_derive::resource_struct`] for why this is not derived.
struct Envelope<'a, S: Spec>(&'a mut Object<S>);

impl<'de, S: Spec> Visitor<'de> for Envelope<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of kind {}", S::KIND)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let object = self.0;
        while let Some(name) = map.next_key::<FieldName<'de>>()? {
            match name.as_str() {
                "kind" => {
                    let kind = map.next_value::<Option<FieldName<'de>>>()?;
                    if let Some(kind) = kind.as_ref().map(FieldName::as_str)
                        && kind != S::KIND.as_str()
                        && !(S::KIND == Kind::IPAMConfiguration && kind == "IPAMConfig")
                    {
                        return Err(de::Error::custom(format!(
                            "expected kind {}, found kind {kind}",
                            S::KIND
                        )));
                    }
                }
                "apiVersion" => {
                    map.next_value::<Option<FieldName<'de>>>()?;
                }
                "metadata" => map.next_value_seed(InPlace(&mut object.metadata))?,
                "spec" => map.next_value_seed(InPlace(&mut object.spec))?,
                "status" => map.next_value_seed(InPlace(&mut object.status))?,
                _ => {
                    object.extra.insert(name.into_string(), map.next_value()?);
                }
            }
        }
        Ok(())
    }
}

impl<S: Spec> Schema for Object<S> {
    fn schema() -> Map<String, Value> {
        let mut builder = ObjectBuilder::new("");
        let text = || object(json!({"type": "string"}));
        builder.field("apiVersion", "The version of this object's schema.", false, text());
        builder.field("kind", "The kind of this object.", false, text());
        builder.field("metadata", "", false, object(json!({"type": "object"})));
        builder.field("spec", "", false, S::schema());
        if S::Status::in_schema() {
            builder.field("status", "", false, S::Status::schema());
        }
        let mut schema = builder.build();
        S::object_schema(&mut schema);
        schema
    }
}

macro_rules! resources {
    ($($variant:ident),+ $(,)?) => {
        /// One object of any kind.
        #[derive(Debug)]
        pub enum Resource {
            $(#[doc = concat!("`", stringify!($variant), "`")] $variant(Box<crate::resources::$variant>),)+
        }

        // Written out: derived code is compiled again in every crate that copies or compares, and this is the largest
        // type of all.
        impl Clone for Resource {
            fn clone(&self) -> Self {
                match self { $(Self::$variant(object) => Self::$variant(object.clone()),)+ }
            }
        }

        impl PartialEq for Resource {
            fn eq(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$variant(one), Self::$variant(other)) => one == other,)+
                    _ => false,
                }
            }
        }

        $(impl From<crate::resources::$variant> for Resource {
            fn from(object: crate::resources::$variant) -> Self {
                Self::$variant(Box::new(object))
            }
        }

        impl TryFrom<Resource> for crate::resources::$variant {
            type Error = Resource;
            fn try_from(resource: Resource) -> Result<Self, Resource> {
                match resource {
                    Resource::$variant(object) => Ok(*object),
                    other => Err(other),
                }
            }
        })+

        impl Resource {
            /// The kind.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Self::$variant(_) => Kind::$variant,)+ }
            }

            /// The metadata.
            #[must_use]
            pub fn metadata(&self) -> &ObjectMeta {
                match self { $(Self::$variant(object) => &object.metadata,)+ }
            }

            /// The metadata, mutable.
            pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
                match self { $(Self::$variant(object) => &mut object.metadata,)+ }
            }

            /// Reads the JSON of an object of this kind, tolerantly.
            ///
            /// # Errors
            /// When the text is not JSON, or a field holds a value of the wrong type.
            pub fn from_json(kind: Kind, json: &[u8]) -> Result<Self, serde_json::Error> {
                match kind {
                    $(Kind::$variant => Ok(Self::$variant(boxed_from_json(json)?)),)+
                }
            }

            /// Reads an object of this kind from a JSON value, tolerantly.
            ///
            /// # Errors
            /// When a field holds a value of the wrong type.
            pub fn from_value(kind: Kind, value: Value) -> Result<Self, serde_json::Error> {
                let json = value.to_string();
                // Dropped before the object is read: a large one need not be in memory three times.
                drop(value);
                Self::from_json(kind, json.as_bytes()).map_err(without_place)
            }

            /// Fills in the typed client's defaults before a write.
            pub fn set_defaults(&mut self) {
                match self { $(Self::$variant(object) => object.set_defaults(),)+ }
            }

            /// Fills in the typed client's defaults after a read.
            pub fn set_read_defaults(&mut self) {
                match self { $(Self::$variant(object) => object.set_read_defaults(),)+ }
            }

            /// Checks everything that can be checked without looking at other objects.
            ///
            /// # Errors
            /// All errors, with paths.
            pub fn validate(&self) -> Result<(), FieldErrors> {
                match self { $(Self::$variant(object) => object.validate(),)+ }
            }

            /// Checks for changes from `old` that are not allowed. Objects of different kinds are not compared.
            ///
            /// # Errors
            /// All errors, with paths.
            pub fn validate_update(&self, old: &Self) -> Result<(), FieldErrors> {
                let mut errors = FieldErrors::new();
                match (self, old) {
                    $((Self::$variant(new), Self::$variant(old)) => new.spec.validate_update(&old.spec, &mut errors),)+
                    _ => {}
                }
                errors.into_result()
            }
        }

        impl Resource {
            /// The JSON, as Calico writes it.
            ///
            /// # Errors
            /// Never for objects of our types; the signature is serde's.
            pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
                match self { $(Self::$variant(object) => to_go_json(object),)+ }
            }
        }

        /// The schema of a whole object of this kind.
        pub(crate) fn schema_of(kind: Kind) -> Map<String, Value> {
            match kind { $(Kind::$variant => crate::resources::$variant::schema(),)+ }
        }
    };
}

resources! {
    BGPConfiguration, BGPFilter, BGPPeer, BlockAffinity, CalicoNodeStatus, ClusterInformation, FelixConfiguration,
    GlobalNetworkPolicy, GlobalNetworkSet, HostEndpoint, IPAMBlock, IPAMConfiguration, IPAMHandle, IPPool,
    IPReservation, KubeControllersConfiguration, KubernetesClusterNetworkPolicy, KubernetesEndpointSlice,
    KubernetesNetworkPolicy, KubernetesService, LiveMigration, NetworkPolicy, NetworkSet, Node, Profile,
    StagedGlobalNetworkPolicy, StagedKubernetesNetworkPolicy, StagedNetworkPolicy, Tier, WorkloadEndpoint,
}

impl Resource {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.metadata().name
    }

    /// The namespace; empty for kinds without namespaces.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.metadata().namespace
    }
}

impl Resource {
    /// The JSON as a value.
    ///
    /// # Errors
    /// Never for objects of our types; the signature is serde's.
    pub fn to_value(&self) -> Result<Value, serde_json::Error> {
        serde_json::from_slice(&self.to_json()?)
    }
}

impl Serialize for Resource {
    fn serialize<W: Serializer>(&self, serializer: W) -> Result<W::Ok, W::Error> {
        let json = self.to_json().map_err(W::Error::custom)?;
        serde_json::from_slice::<Ordered>(&json).map_err(W::Error::custom)?.serialize(serializer)
    }
}

/// Reads an object directly into its final place.
fn boxed_from_json<T: DeserializeOwned + Default>(json: &[u8]) -> Result<Box<T>, serde_json::Error> {
    let mut object = Box::<T>::default();
    // Checking once whether all of it is text is quicker than checking each of many short strings.
    let mut deserializer = serde_json::Deserializer::from_str(text(json)?);
    T::deserialize_in_place(&mut deserializer, &mut object)?;
    deserializer.end()?;
    Ok(object)
}

/// The bytes as text; bytes that are not text are not JSON either, and the error includes the position.
fn text(json: &[u8]) -> Result<&str, serde_json::Error> {
    std::str::from_utf8(json).map_err(|error| match serde_json::from_slice::<Value>(json) {
        Err(place) => place,
        Ok(_) => de::Error::custom(error),
    })
}

/// Whether a status value is its zero; for kinds that omit a zero status.
#[must_use]
pub fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    is_default(value)
}
