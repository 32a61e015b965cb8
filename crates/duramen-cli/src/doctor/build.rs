//! How this program was built. Unoptimised storage engines have misled benchmarks before.

/// The optimisation level and profile, and what is wrong with them for a database.
pub(crate) struct Build {
    pub(super) opt_level: &'static str,
    pub(super) profile: &'static str,
    pub(super) debug_assertions: bool,
    pub(super) target: String,
}

pub(crate) fn this() -> Build {
    Build {
        opt_level: env!("DURAMEN_OPT_LEVEL"),
        profile: env!("DURAMEN_PROFILE"),
        debug_assertions: cfg!(debug_assertions),
        target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
    }
}

impl Build {
    /// Why figures of this build mean little, if they do.
    pub(crate) fn warning(&self) -> Option<String> {
        let how = match self.opt_level {
            "3" | "2" if self.debug_assertions => "with debug assertions",
            "3" | "2" => return None,
            "s" | "z" => "optimised for size",
            _ => "not optimised",
        };
        Some(format!("this program was built {how}: use `cargo build --release` for anything that counts"))
    }

    pub(crate) fn describe(&self) -> String {
        let assertions = if self.debug_assertions { ", debug assertions" } else { "" };
        format!(
            "duramen {}, profile {}, opt-level {}{assertions}, {}",
            env!("CARGO_PKG_VERSION"),
            self.profile,
            self.opt_level,
            self.target
        )
    }
}

#[cfg(test)]
mod tests {
    //! A slow build must report it.
    use super::*;

    #[test]
    fn what_is_not_optimised_is_called_out() {
        let build = |opt_level, debug_assertions| {
            let target = String::new();
            Build { opt_level, profile: "", debug_assertions, target }.warning()
        };
        assert_eq!(build("3", false), None);
        for (level, assertions, words) in [
            ("3", true, "debug assertions"),
            ("z", false, "for size"),
            ("0", true, "not optimised"),
            ("1", false, "not"),
        ] {
            assert!(build(level, assertions).is_some_and(|warning| warning.contains(words)), "{level}");
        }
    }
}
