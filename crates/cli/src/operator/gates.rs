//! `--feature-gates` of the existing operator. A gate whose feature exists here is obeyed; one that asks for something else
//! is refused.

use std::str::FromStr;

use super::flags::Toggle;

/// What the gates ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Gates {
    /// Edits of where new executors run do not restart an application whose executors the operator allocates.
    pub(crate) partial_restart: bool,
    /// Whether `--default-time-to-live-seconds` holds, if a gate says so.
    pub(crate) default_time_to_live: Option<bool>,
}

impl FromStr for Gates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut gates = Gates::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("`{pair}` has no value; write {pair}=true or {pair}=false"))?;
            let on = value.trim().parse::<Toggle>().map_err(|problem| format!("{}: {problem}", name.trim()))?.0;
            match (name.trim(), on) {
                ("PartialRestart", on) => gates.partial_restart = on,
                ("DefaultTimeToLive", on) => gates.default_time_to_live = Some(on),
                // There are no beta gates.
                ("LoadSparkDefaults" | "RestSubmitter" | "AllAlpha", false) | ("AllBeta", _) => {}
                ("LoadSparkDefaults", true) => {
                    return Err("LoadSparkDefaults: the operator has no spark-defaults.conf; put the settings into spec.sparkConf, or into a ConfigMap named by spec.sparkConfigMap".to_owned());
                }
                ("RestSubmitter", true) => {
                    return Err("RestSubmitter: the operator creates drivers itself and calls no submission service; remove the gate".to_owned());
                }
                ("AllAlpha", true) => {
                    return Err("AllAlpha: some alpha features do not exist here; name those you need, such as PartialRestart=true".to_owned());
                }
                (name, _) => {
                    return Err(format!(
                        "{name} is not a known gate; known are PartialRestart, DefaultTimeToLive, LoadSparkDefaults, RestSubmitter, AllAlpha and AllBeta"
                    ));
                }
            }
        }
        Ok(gates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gate_is_obeyed_or_refused() {
        let gates = |text: &str| text.parse::<Gates>();
        assert_eq!(gates(""), Ok(Gates::default()));
        assert!(gates("PartialRestart=true,AllBeta=true").unwrap().partial_restart);
        assert_eq!(gates("DefaultTimeToLive=false").unwrap().default_time_to_live, Some(false));
        assert_eq!(gates("LoadSparkDefaults=false,RestSubmitter=false,AllAlpha=false"), Ok(Gates::default()));
        for (refused, word) in [
            ("LoadSparkDefaults=true", "spec.sparkConf"),
            ("RestSubmitter=true", "remove the gate"),
            ("AllAlpha=true", "name those you need"),
            ("Magic=true", "not a known gate"),
            ("PartialRestart", "PartialRestart=true"),
            ("PartialRestart=maybe", "neither true nor false"),
        ] {
            let said = gates(refused).unwrap_err();
            assert!(said.contains(word), "{refused}: {said}");
        }
    }
}
