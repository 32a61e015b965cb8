//! The page: a title, sections, a last line, and the figures in a form for programs.

use crate::report::escape;
use crate::report::section::Section;

const STYLE: &str = include_str!("style.css");

/// Nothing is loaded and no script runs, whatever strings the page contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// A report.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    title: String,
    lead: String,
    sections: Vec<Section>,
    footer: String,
    data: Option<String>,
}

impl Page {
    /// An empty page; the lead is the sentence below the title.
    #[must_use]
    pub fn new(title: impl Into<String>, lead: impl Into<String>) -> Page {
        Page {
            title: title.into(),
            lead: lead.into(),
            sections: Vec::new(),
            footer: String::new(),
            data: None,
        }
    }

    /// One more section.
    #[must_use]
    pub fn section(mut self, section: Section) -> Page {
        self.sections.push(section);
        self
    }

    /// The last line: the program that made the report, and the time.
    #[must_use]
    pub fn footer(mut self, text: impl Into<String>) -> Page {
        self.footer = text.into();
        self
    }

    /// The figures as JSON, kept in the block `<script type="application/json" id="data">` for programs.
    #[must_use]
    pub fn data(mut self, json: impl Into<String>) -> Page {
        self.data = Some(json.into());
        self
    }

    /// The file.
    #[must_use]
    pub fn to_html(&self) -> String {
        let title = escape::text(&self.title);
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
             <style>\n{STYLE}</style></head>\n<body><main>\n<header><h1>{title}</h1><p>{}</p></header>\n",
            escape::text(&self.lead)
        );
        for section in &self.sections {
            section.write(&mut out);
        }
        if !self.footer.is_empty() {
            out.push_str(&format!("<footer>{}</footer>\n", escape::text(&self.footer)));
        }
        out.push_str("</main>\n");
        if let Some(data) = &self.data {
            out.push_str(&format!(
                "<script type=\"application/json\" id=\"data\">{}</script>\n",
                escape::json(data)
            ));
        }
        out.push_str("</body></html>\n");
        out
    }
}
