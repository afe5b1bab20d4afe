//! `#[resource_struct]`: one declaration of a resource's field gives its JSON codec, its CRD schema and its limits.
//!
//! Go's API types carry three things in struct tags: the JSON name, whether a zero value is left out, and the
//! kubebuilder limits. This attribute carries the same three for a plain Rust struct, so that no field can be known to
//! the codec and unknown to the schema. `serde` alone would need four attributes on every field, and a schema crate
//! would invent `default` and `nullable` entries that a structural schema must not have.
//!
//! What a struct gets:
//! - `Clone`, `Debug`, `Default`, `PartialEq`, `Serialize`, `Deserialize`, in field order, zero values omitted;
//! - a last field `extra` that keeps unknown fields, so that writing an object back loses nothing;
//! - `null` read as the zero value, as Go reads it;
//! - `api::schema::Schema`, with the doc comment as description.
//!
//! Field attribute `#[field(...)]`, all parts optional:
//! - `name = "disableBGPExport"`: the JSON name, if it is not the lower camel case of the Rust name;
//! - `always`: written even when zero;
//! - `required`: listed under `required` in the schema;
//! - `min`, `max`, `min_len`, `max_len`, `min_items`, `max_items`: numbers; `pattern`, `format`: strings;
//! - `item_pattern`, `item_max_len`: limits for a list's items;
//! - `list = "set" | "atomic" | "map:KEY[,KEY]"`: the list type of the schema;
//! - `default = "<JSON>"`: the schema's default;
//! - `schema = path`: a function `fn(&mut serde_json::Map<String, Value>)` that is applied last.
//!
//! Struct attribute `#[resource_struct(rules)]`: the struct implements `api::rules::HasRules`, and the schema includes
//! those rules as `x-kubernetes-validations`. `#[resource_struct(atomic)]`: the schema marks the struct as merged as
//! one value (`x-kubernetes-map-type: atomic`). Both may be given, separated by a comma.
//!
//! Does not support enums, tuple structs and generics: resource structs need none of them.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{Attribute, Expr, Field, Fields, ItemStruct, Lit, LitStr, Meta, Path, Type, parse_macro_input};

/// Turns a plain struct with named fields into a resource struct; see the crate's header.
#[proc_macro_attribute]
pub fn resource_struct(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut options = StructOptions::default();
    for word in args.to_string().split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            "rules" => options.rules = true,
            "atomic" => options.atomic = true,
            other => {
                let message = format!("unknown argument '{other}': only `rules` and `atomic` are known");
                return syn::Error::new(proc_macro2::Span::call_site(), message).to_compile_error().into();
            }
        }
    }
    let item = parse_macro_input!(item as ItemStruct);
    expand(item, options).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// The arguments of `#[resource_struct(...)]`.
#[derive(Clone, Copy, Default)]
struct StructOptions {
    rules: bool,
    atomic: bool,
}

/// The arguments of `#[field(...)]` on one field.
#[derive(Default)]
struct FieldOptions {
    name: Option<String>,
    always: bool,
    required: bool,
    numbers: Vec<(&'static str, Expr)>,
    strings: Vec<(&'static str, LitStr)>,
    item_strings: Vec<(&'static str, LitStr)>,
    item_numbers: Vec<(&'static str, Expr)>,
    list: Option<LitStr>,
    default: Option<LitStr>,
    schema: Option<Path>,
}

fn expand(item: ItemStruct, options: StructOptions) -> syn::Result<Tokens> {
    if !item.generics.params.is_empty() {
        return Err(syn::Error::new_spanned(item.generics, "a resource struct has no generics"));
    }
    let Fields::Named(fields) = &item.fields else {
        return Err(syn::Error::new_spanned(item.fields, "a resource struct has named fields"));
    };
    let (attrs, vis, ident) = (&item.attrs, &item.vis, &item.ident);
    let description = doc_text(attrs);
    let mut codec_fields = Vec::new();
    let mut read_fields = Vec::new();
    let mut schema_fields = Vec::new();
    for field in &fields.named {
        let Expanded { codec, read, schema } = expand_field(field)?;
        codec_fields.push(codec);
        read_fields.push(read);
        schema_fields.push(schema);
    }
    let names: Vec<_> = fields.named.iter().filter_map(|field| field.ident.as_ref()).collect();
    let expecting = format!("struct {ident}");
    let mut extras = Tokens::new();
    if options.atomic {
        extras
            .extend(quote! { crate::schema::limit(&mut object, "x-kubernetes-map-type", "atomic".into()); });
    }
    if options.rules {
        extras.extend(quote! { crate::rules::attach::<Self>(&mut object); });
    }
    let mutable = if extras.is_empty() {
        Tokens::new()
    } else {
        quote! { mut }
    };
    Ok(quote! {
        #(#attrs)*
        #[derive(Debug, Default, ::serde::Serialize)]
        #vis struct #ident {
            #(#codec_fields)*
            /// Fields that this version does not know, kept so that writing back loses nothing.
            #[serde(flatten)]
            pub extra: crate::codec::Extra,
        }

        // Written out: derived code is compiled again in every crate that uses it.
        impl Clone for #ident {
            fn clone(&self) -> Self {
                Self { #(#names: self.#names.clone(),)* extra: self.extra.clone() }
            }
        }

        impl PartialEq for #ident {
            fn eq(&self, other: &Self) -> bool {
                #(self.#names == other.#names &&)* self.extra == other.extra
            }
        }

        // Written out: the derived implementation keeps every field twice and moves the whole struct several times,
        // which takes most of the time of reading a large list. This fills the fields in place.
        impl<'de> ::serde::Deserialize<'de> for #ident {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let mut object = Self::default();
                Self::deserialize_in_place(deserializer, &mut object)?;
                Ok(object)
            }

            fn deserialize_in_place<D: ::serde::Deserializer<'de>>(
                deserializer: D,
                place: &mut Self,
            ) -> Result<(), D::Error> {
                struct Fields<'a>(&'a mut #ident);
                impl<'de> ::serde::de::Visitor<'de> for Fields<'_> {
                    type Value = ();

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str(#expecting)
                    }

                    fn visit_map<A: ::serde::de::MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
                        let object = self.0;
                        while let Some(name) = map.next_key::<crate::codec::FieldName<'de>>()? {
                            match name.as_str() {
                                #(#read_fields)*
                                _ => {
                                    object.extra.insert(name.into_string(), map.next_value()?);
                                }
                            }
                        }
                        Ok(())
                    }
                }
                deserializer.deserialize_map(Fields(place))
            }
        }

        impl crate::schema::Schema for #ident {
            fn schema() -> ::serde_json::Map<String, ::serde_json::Value> {
                let mut object = crate::schema::ObjectBuilder::new(#description);
                #(#schema_fields)*
                let #mutable object = object.build();
                #extras
                object
            }
        }
    })
}

/// The generated code for one field.
struct Expanded {
    /// The field of the struct.
    codec: Tokens,
    /// The arm that reads it.
    read: Tokens,
    /// Its part of the schema.
    schema: Tokens,
}

fn expand_field(field: &Field) -> syn::Result<Expanded> {
    let options = parse_options(&field.attrs)?;
    let Some(ident) = field.ident.as_ref() else {
        return Err(syn::Error::new_spanned(field, "a resource struct has named fields"));
    };
    let kept: Vec<&Attribute> = field.attrs.iter().filter(|attr| !attr.path().is_ident("field")).collect();
    let (vis, ty) = (&field.vis, &field.ty);
    let name = options.name.clone().unwrap_or_else(|| lower_camel_case(&ident.to_string()));
    let skip = if options.always {
        Tokens::new()
    } else {
        quote! { , skip_serializing_if = "crate::codec::is_default" }
    };
    let codec = quote! {
        #(#kept)*
        #[serde(rename = #name #skip)]
        #vis #ident: #ty,
    };
    let reader = if is_list(ty) {
        quote! { ListInPlace }
    } else {
        quote! { InPlace }
    };
    let read = quote! {
        #name => map.next_value_seed(crate::codec::#reader(&mut object.#ident))?,
    };
    let description = doc_text(&field.attrs);
    let mut limits = Vec::new();
    for (keyword, value) in &options.numbers {
        limits.push(quote! { crate::schema::limit(&mut field, #keyword, ::serde_json::json!(#value)); });
    }
    for (keyword, value) in &options.strings {
        limits.push(quote! { crate::schema::limit(&mut field, #keyword, ::serde_json::json!(#value)); });
    }
    for (keyword, value) in &options.item_strings {
        limits
            .push(quote! { crate::schema::limit_items(&mut field, #keyword, ::serde_json::json!(#value)); });
    }
    for (keyword, value) in &options.item_numbers {
        limits
            .push(quote! { crate::schema::limit_items(&mut field, #keyword, ::serde_json::json!(#value)); });
    }
    if let Some(list) = &options.list {
        limits.push(quote! { crate::schema::list_type(&mut field, #list); });
    }
    if let Some(default) = &options.default {
        limits.push(quote! { crate::schema::default_value(&mut field, #default); });
    }
    if let Some(function) = &options.schema {
        limits.push(quote! { #function(&mut field); });
    }
    let required = options.required;
    let schema = quote! {
        {
            #[allow(unused_mut, reason = "only fields with limits change")]
            let mut field = <#ty as crate::schema::Schema>::schema();
            #(#limits)*
            object.field(#name, #description, #required, field);
        }
    };
    Ok(Expanded { codec, read, schema })
}

fn parse_options(attrs: &[Attribute]) -> syn::Result<FieldOptions> {
    let mut options = FieldOptions::default();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("field")) {
        attr.parse_nested_meta(|meta| {
            let Some(word) = meta.path.get_ident().map(ToString::to_string) else {
                return Err(meta.error("expected a word"));
            };
            match word.as_str() {
                "name" => options.name = Some(meta.value()?.parse::<LitStr>()?.value()),
                "always" => options.always = true,
                "required" => options.required = true,
                "min" => options.numbers.push(("minimum", meta.value()?.parse()?)),
                "max" => options.numbers.push(("maximum", meta.value()?.parse()?)),
                "min_len" => options.numbers.push(("minLength", meta.value()?.parse()?)),
                "max_len" => options.numbers.push(("maxLength", meta.value()?.parse()?)),
                "min_items" => options.numbers.push(("minItems", meta.value()?.parse()?)),
                "max_items" => options.numbers.push(("maxItems", meta.value()?.parse()?)),
                "pattern" => options.strings.push(("pattern", meta.value()?.parse()?)),
                "format" => options.strings.push(("format", meta.value()?.parse()?)),
                "item_pattern" => options.item_strings.push(("pattern", meta.value()?.parse()?)),
                "item_max_len" => options.item_numbers.push(("maxLength", meta.value()?.parse()?)),
                "list" => options.list = Some(meta.value()?.parse()?),
                "default" => options.default = Some(meta.value()?.parse()?),
                "schema" => options.schema = Some(meta.value()?.parse()?),
                other => return Err(meta.error(format!("unknown field option '{other}'"))),
            }
            Ok(())
        })?;
    }
    Ok(options)
}

/// Whether a type is written as a `Vec`.
fn is_list(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == "Vec")
}

/// The doc comment as one paragraph: lines joined, blank lines kept as line breaks.
fn doc_text(attrs: &[Attribute]) -> String {
    let mut text = String::new();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("doc")) {
        let Meta::NameValue(pair) = &attr.meta else { continue };
        let Expr::Lit(literal) = &pair.value else { continue };
        let Lit::Str(line) = &literal.lit else { continue };
        let line = line.value();
        let line = line.trim();
        if line.is_empty() {
            text.push('\n');
        } else {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push(' ');
            }
            text.push_str(line);
        }
    }
    text.trim().to_owned()
}

fn lower_camel_case(snake: &str) -> String {
    let mut name = String::with_capacity(snake.len());
    let mut upper = false;
    for letter in snake.trim_start_matches("r#").chars() {
        if letter == '_' {
            upper = true;
        } else if upper {
            name.extend(letter.to_uppercase());
            upper = false;
        } else {
            name.push(letter);
        }
    }
    name
}
