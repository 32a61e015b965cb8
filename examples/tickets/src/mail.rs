//! Mails and what sends them.

/// A mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The address.
    pub to: String,
    /// The subject.
    pub subject: String,
    /// The text.
    pub text: String,
}

/// Sends mails. A test captures them; a program in production speaks to its mail server.
pub trait Mailer: Send + Sync {
    /// Sends a mail. It may be called again for a mail that was sent, if a crash came before the note of it.
    ///
    /// # Errors
    /// A sentence about what failed. The job is then tried again later.
    fn send(&self, mail: &Mail) -> Result<(), String>;
}
