//! Networks as text in JSON.

/// A network as text.
pub(super) mod net {
    use ipnet::IpNet;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(in crate::topology) fn serialize<S: Serializer>(
        net: &IpNet,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(net)
    }

    pub(in crate::topology) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<IpNet, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// An optional network as text.
pub(super) mod optional_net {
    use ipnet::IpNet;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(in crate::topology) fn serialize<S: Serializer>(
        net: &Option<IpNet>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        net.map(|net| net.to_string()).serialize(serializer)
    }

    pub(in crate::topology) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<IpNet>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}
