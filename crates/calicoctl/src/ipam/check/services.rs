//! The addresses of services: those of type LoadBalancer that Calico's controller manages.
//!
//! Services live in Kubernetes, whatever the datastore is. Where no Kubernetes is configured, and no address was ever
//! allocated to a service, there is nothing to look for.

use super::CheckArgs;
use super::findings::Findings;
use crate::context::{CONNECT_DEADLINE, Context};
use crate::failure::{Failure, Result};
use crate::ipam::store::all_readable;
use api::words::service as words;
use api::{AssignIPs, Kind, KubeControllersConfigurationSpec, KubernetesService, Resource};
use client::config::KubernetesSettings;
use client::{Client, ClientConfig, DatastoreType};
use model::{ListOptions, Value};
use std::time::Duration;

/// How long the list of all services may take.
const LIST_DEADLINE: Duration = Duration::from_secs(20);

/// The load balancer class of Calico's controller.
const OUR_CLASS: &str = "calico";

/// Annotations by which a service requests an address.
const ASKING: [&str; 3] = [words::IPV4_POOLS, words::IPV6_POOLS, words::LOAD_BALANCER_IPS];

pub(super) async fn load(
    client: &Client,
    args: &CheckArgs,
    context: &mut Context,
    findings: &mut Findings,
) -> Result<()> {
    let kubernetes = if client.backend().is_kubernetes() {
        client.clone()
    } else {
        let from_environment = || context.surroundings.environment.variable("KUBECONFIG")?.into_string().ok();
        let kubeconfig = args.kubeconfig.clone().or_else(from_environment).filter(|path| !path.is_empty());
        match kubeconfig {
            Some(kubeconfig) => connect(kubeconfig, args, context).await?,
            None if findings.has_service_allocations() => {
                return Err(Failure::new(
                    "KUBECONFIG environment variable or --kubeconfig parameter not set",
                ));
            }
            None => {
                findings.say("No Kubernetes cluster given, skipping service check\n\n");
                return Ok(());
            }
        }
    };
    let list = ListOptions::resources(Kind::KubernetesService);
    let services = match tokio::time::timeout(LIST_DEADLINE, kubernetes.backend().list(&list, None)).await {
        Ok(outcome) => outcome
            .map_err(|error| Failure::new(format!("failed to list services: {}", Failure::from(error))))?,
        Err(_) => {
            return Err(Failure::new(format!(
                "failed to list services: the Kubernetes API does not answer within {} s (set by KUBECONFIG or --kubeconfig)",
                LIST_DEADLINE.as_secs()
            )));
        }
    };
    all_readable("service", &services.invalid)?;
    let assign_ips =
        match client.resource::<KubeControllersConfigurationSpec>().get("", api::words::GLOBAL_NAME).await {
            Ok(configuration) => {
                configuration.spec.controllers.load_balancer.map(|settings| settings.assign_ips)
            }
            Err(error) if error.is_does_not_exist() => None,
            Err(error) => return Err(error.into()),
        };
    let Some(assign_ips) = assign_ips else {
        findings.say("No configuration for LoadBalancer kubecontroller found, skipping service check\n\n");
        return Ok(());
    };
    let mut count = 0;
    for entry in services.items {
        let Value::Resource(Resource::KubernetesService(service)) = entry.value else { continue };
        if !is_ours(&service, &assign_ips) {
            continue;
        }
        count += 1;
        for place in &service.status.load_balancer.ingress {
            // The status may hold a host name instead of an address.
            if let Ok(address) = place.ip.parse() {
                findings.add_user(address, &service.metadata.name);
            }
        }
    }
    findings.say(&format!("Found {count} service load balancer(s).\n\n"));
    Ok(())
}

async fn connect(kubeconfig: String, args: &CheckArgs, context: &Context) -> Result<Client> {
    let current_context = context.globals.context.clone().unwrap_or_default();
    let shown = kubeconfig.clone();
    let config = ClientConfig {
        datastore_type: DatastoreType::Kubernetes,
        kubernetes: KubernetesSettings { kubeconfig, current_context, ..KubernetesSettings::default() },
        ..context.client_config(&args.config)?
    };
    match tokio::time::timeout(CONNECT_DEADLINE, Client::open(&config)).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => Err(Failure::new(format!("the Kubernetes API of kubeconfig {shown} does not answer"))),
    }
}

/// Whether Calico's controller manages a service.
fn is_ours(service: &KubernetesService, assign_ips: &AssignIPs) -> bool {
    let spec = &service.spec.0;
    if spec.kind != "LoadBalancer" {
        return false;
    }
    match spec.load_balancer_class.as_deref() {
        Some(class) => class == OUR_CLASS,
        None if *assign_ips == AssignIPs::RequestedServicesOnly => {
            !spec.load_balancer_ip.is_empty()
                || ASKING.iter().any(|annotation| service.metadata.annotations.contains_key(*annotation))
        }
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::KubernetesServiceSpec;

    #[test]
    fn services_are_ours_by_class_or_annotation() {
        for (kind, class, address, annotation, all, requested) in [
            ("ClusterIP", None, "", "", false, false),
            ("LoadBalancer", None, "", "", true, false),
            ("LoadBalancer", Some("calico"), "", "", true, true),
            ("LoadBalancer", Some("other"), "1.2.3.4", ASKING[0], false, false),
            ("LoadBalancer", None, "1.2.3.4", "", true, true),
            ("LoadBalancer", None, "", ASKING[2], true, true),
        ] {
            let mut spec = KubernetesServiceSpec::default();
            kind.clone_into(&mut spec.0.kind);
            spec.0.load_balancer_class = class.map(str::to_owned);
            address.clone_into(&mut spec.0.load_balancer_ip);
            let mut service = KubernetesService::new("ns", "s", spec);
            service.metadata.annotations.insert(annotation.to_owned(), String::new());
            assert_eq!(is_ours(&service, &AssignIPs::AllServices), all, "{kind} {class:?}");
            assert_eq!(is_ours(&service, &AssignIPs::RequestedServicesOnly), requested, "{kind} {class:?}");
        }
    }
}
