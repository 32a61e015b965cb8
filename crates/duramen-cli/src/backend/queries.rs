//! Queries of a database, local or served. Both are described by the protocol's message.

use duramen::find::{FindCursor, FindPlan, Step};
use duramen::{Document, Schema};
use duramen_proto::{query, v1};

use super::Reading;
use super::served::FoundRows;
use crate::failure::Result;

/// How a query is run.
pub(crate) struct Planned {
    pub(crate) plan: FindPlan,
    /// Beyond this much memory a sort, or groups, use a temporary file.
    pub(crate) memory_bytes: u64,
}

/// What a query finds in the first documents that it reads.
pub(crate) struct Sample {
    pub(crate) documents: Vec<Document>,
    pub(crate) read_count: u64,
    /// There are no others.
    pub(crate) is_complete: bool,
}

/// What a query finds, one at a time.
pub(crate) enum Found {
    Local(FindCursor),
    Served(Box<FoundRows>),
}

impl Reading {
    /// The schema of what a query finds, joins included.
    pub(crate) fn schema_of(&self, stored: &Schema, find: &v1::Find) -> Result<Schema> {
        if find.joins.is_empty() {
            return Ok(stored.clone());
        }
        match self {
            Reading::Local { snapshot, .. } => Ok(query::joined(snapshot, find)?.schema()?),
            Reading::Served(served) => {
                let joins = find.joins.clone();
                let joined = v1::Find { collection: find.collection.clone(), joins, ..v1::Find::default() };
                Ok(Schema::from_bytes(&served.explain(joined)?.definition)?)
            }
        }
    }

    /// How a query is run.
    pub(crate) fn plan(&self, find: &v1::Find) -> Result<Planned> {
        match self {
            Reading::Local { snapshot, .. } => {
                let found = query::find(snapshot, find)?;
                let plan = match query::grouped(&found, find)? {
                    Some(grouped) => grouped.plan()?,
                    None => found.plan()?,
                };
                Ok(Planned { plan, memory_bytes: duramen::find::SORT_BYTES_DEFAULT as u64 })
            }
            Reading::Served(served) => {
                let answer = served.explain(find.clone())?;
                Ok(Planned { plan: query::plan(&answer, find)?, memory_bytes: answer.memory_bytes })
            }
        }
    }

    /// What a query finds.
    pub(crate) fn find(&self, find: &v1::Find) -> Result<Found> {
        match self {
            Reading::Local { snapshot, .. } => {
                let found = query::find(snapshot, find)?;
                let cursor = match query::grouped(&found, find)? {
                    Some(grouped) => grouped.cursor()?,
                    None => found.cursor()?,
                };
                Ok(Found::Local(cursor))
            }
            Reading::Served(served) => Ok(Found::Served(Box::new(served.find(find.clone())?))),
        }
    }

    /// What a query finds in the first `find.read_max` documents that it reads.
    pub(crate) fn sample(&self, find: &v1::Find) -> Result<Sample> {
        if let Reading::Served(served) = self {
            return served.sample(find.clone());
        }
        let mut found = self.find(find)?;
        let read_max = if find.read_max == 0 { u64::MAX } else { find.read_max };
        let (mut documents, mut is_complete) = (Vec::new(), false);
        while found.read_count() < read_max && !is_complete {
            match found.next_within(read_max - found.read_count())? {
                Step::Found(document) => documents.push(document),
                Step::Unfinished => {}
                Step::End => is_complete = true,
            }
        }
        Ok(Sample { documents, read_count: found.read_count(), is_complete })
    }
}

impl Found {
    /// How many documents were read so far.
    pub(crate) fn read_count(&self) -> u64 {
        match self {
            Found::Local(cursor) => cursor.read_count(),
            Found::Served(rows) => rows.read_count(),
        }
    }

    /// With how many threads this process reads.
    pub(crate) fn threads(&self) -> usize {
        match self {
            Found::Local(cursor) => cursor.threads(),
            Found::Served(_) => 1,
        }
    }

    /// Reads until something is found, but at most `read_max` documents. A server decides itself how many it
    /// reads before it answers.
    pub(crate) fn next_within(&mut self, read_max: u64) -> Result<Step> {
        match self {
            Found::Local(cursor) => Ok(cursor.next_within(read_max)?),
            Found::Served(rows) => rows.next(),
        }
    }
}
