//! `nowait enable --container`: prints the lines that put a container under nowait, and writes
//! nothing.

use crate::args::{ContainerKind, EnableArgs, Via};
use crate::{libraries, run};
use clap::ValueEnum;
use nowait_terminal::{Failure, Result, print, print_json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The folder of the library in the container.
const INSIDE: &str = "/opt/nowait";

/// The library that a container needs.
#[derive(Debug)]
struct Needs {
    /// The library on this host.
    library: PathBuf,
    /// The library's path in the container.
    inside: PathBuf,
    variables: Vec<(&'static str, String)>,
}

/// Prints the lines, for one kind or for each.
pub(crate) fn lines(args: &EnableArgs, kind: Option<ContainerKind>) -> Result<ExitCode> {
    run::check(&args.options)?;
    let via = args.options.via;
    let mut variables = run::variables(&args.options);
    let inside = Path::new(INSIDE).join(via.file_name());
    variables.insert(0, (via.variable(), via.value(&inside, None)));
    let text = |(name, value): (&'static str, std::ffi::OsString)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(value) => Err(Failure::new(format!("{}: not UTF-8", value.display()))),
    };
    let variables = variables.into_iter().map(text).collect::<Result<_>>()?;
    let needs = Needs { library: libraries::find(via)?, inside, variables };
    let all = ContainerKind::value_variants();
    let kinds = all.iter().filter(|it| kind.is_none_or(|kind| kind == **it));
    let texts: Vec<_> = kinds.map(|kind| (name(*kind), needs.text(*kind, via))).collect();
    if args.services.json {
        let texts: BTreeMap<_, _> = texts.into_iter().collect();
        return print_json(&texts);
    }
    let texts: Vec<_> = texts.into_iter().map(|(_, text)| text).collect();
    print(texts.join("\n").as_bytes())
}

fn name(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Docker => "docker",
        ContainerKind::Compose => "compose",
        ContainerKind::Kubernetes => "kubernetes",
    }
}

impl Needs {
    fn text(&self, kind: ContainerKind, via: Via) -> String {
        match kind {
            ContainerKind::Docker => self.docker(via),
            ContainerKind::Compose => self.compose(),
            ContainerKind::Kubernetes => self.kubernetes(),
        }
    }

    fn docker(&self, via: Via) -> String {
        let (library, inside) = (self.library.display(), self.inside.display());
        let mount = format!("type=bind,source={library},target={inside},readonly");
        let set = |(name, value): &(&str, String)| {
            format!("    --env {} \\\n", in_shell(&format!("{name}={value}")))
        };
        let set: String = self.variables.iter().map(set).collect();
        let env = |(name, value): &(&str, String)| {
            // Docker would expand `$` as a variable of the build.
            format!("ENV {name}={}\n", quoted(value).replace('$', "\\$"))
        };
        let env: String = self.variables.iter().map(env).collect();
        let file = via.file_name();
        format!(
            "# Docker and Podman: the library of this host.\n\
             docker run \\\n    --mount {} \\\n{set}    IMAGE\n\n\
             # Or in the image, by its Dockerfile; {file} lies beside it.\n\
             COPY {file} {INSIDE}/\n{env}",
            in_shell(&mount)
        )
    }

    fn compose(&self) -> String {
        // Compose would expand `$` as a variable.
        let value = |text: &str| quoted(&text.replace('$', "$$"));
        let set = |(name, text): &(&str, String)| format!("      {name}: {}\n", value(text));
        let set: String = self.variables.iter().map(set).collect();
        format!(
            "# Compose: what a service needs, beside what it has.\n\
             services:\n  NAME:\n    volumes:\n      - type: bind\n        source: {}\n        \
             target: {}\n        read_only: true\n    environment:\n{set}",
            value(&self.library.display().to_string()),
            value(&self.inside.display().to_string()),
        )
    }

    fn kubernetes(&self) -> String {
        // Kubernetes would expand `$(` as a variable.
        let value = |text: &str| quoted(&text.replace("$(", "$$("));
        let set = |(name, text): &(&str, String)| {
            format!("        - name: {name}\n          value: {}\n", value(text))
        };
        let set: String = self.variables.iter().map(set).collect();
        format!(
            "# Kubernetes: what a pod needs, beside what it has; the library is on each node.\n\
             # Where hostPath is forbidden: COPY the library into the image, without the volume.\n\
             spec:\n  containers:\n    - name: NAME\n      env:\n{set}      volumeMounts:\n        \
             - name: nowait\n          mountPath: {}\n          readOnly: true\n  volumes:\n    \
             - name: nowait\n      hostPath:\n        path: {}\n        type: File\n",
            quoted(&self.inside.display().to_string()),
            quoted(&self.library.display().to_string()),
        )
    }
}

/// Quotes for YAML and Dockerfiles, which both read strings as JSON has them.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Quotes for a shell if needed.
fn in_shell(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/=,._-:+".contains(&byte);
    if text.bytes().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
