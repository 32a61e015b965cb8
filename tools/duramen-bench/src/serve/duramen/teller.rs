//! A task that makes transfers on one stream of transactions.

use std::time::Duration;

use duramen::tuple::Element;
use duramen::{Code, Document, Value, doc};
use duramen_proto::v1::data_client::DataClient;
use duramen_proto::v1::transact_reply::Kind as Told;
use duramen_proto::v1::transact_request::Kind as Asked;
use duramen_proto::v1::{self, operation, read, read_result};
use duramen_proto::{document, key, status};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Streaming};

use crate::engine::Result;
use crate::serve::server::{Done, Teller, Transfer};

pub(super) const ACCOUNTS: &str = "accounts";

/// A stream of transactions.
pub(super) struct Clerk {
    messages: UnboundedSender<v1::TransactRequest>,
    answers: Streaming<v1::TransactReply>,
}

/// Why a transfer was not made.
enum Failure {
    /// It may be made again.
    Conflict,
    Other(String),
}

impl From<String> for Failure {
    fn from(what: String) -> Failure {
        Failure::Other(what)
    }
}

impl Clerk {
    /// Opens a stream, which lasts for five minutes.
    pub(super) async fn open(mut client: DataClient<Channel>, token: &MetadataValue<Ascii>) -> Result<Clerk> {
        let (messages, sent) = mpsc::unbounded_channel();
        let mut request = Request::new(UnboundedReceiverStream::new(sent));
        request.metadata_mut().insert("authorization", token.clone());
        request.set_timeout(Duration::from_secs(300));
        let answers = client.transact(request).await?.into_inner();
        Ok(Clerk { messages, answers })
    }

    fn send(&self, kind: Asked) -> std::result::Result<(), Failure> {
        let message = v1::TransactRequest { kind: Some(kind) };
        self.messages.send(message).map_err(|_| Failure::Other("the stream was closed".to_owned()))
    }

    async fn answer(&mut self) -> std::result::Result<Told, Failure> {
        let reply = self.answers.next().await.ok_or_else(|| "the stream has ended".to_owned())?;
        match reply.map_err(|status| status.to_string())?.kind {
            Some(Told::Failed(failed)) => match status::failed(&failed) {
                error if error.code() == Code::WriteConflict => Err(Failure::Conflict),
                error => Err(Failure::Other(error.to_string())),
            },
            told => told.ok_or_else(|| Failure::Other("an answer without a kind".to_owned())),
        }
    }

    fn ask_balance(&self, account: i64) -> std::result::Result<(), Failure> {
        let of = v1::DocumentKey {
            collection: ACCOUNTS.to_owned(),
            key: Some(key::of(&[Element::Int(account.into())])),
        };
        let reads = vec![v1::Read { kind: Some(read::Kind::Get(of)) }];
        self.send(Asked::Step(v1::Step { reads, ..Default::default() }))
    }

    async fn balance(&mut self) -> std::result::Result<i64, Failure> {
        let Told::StepDone(done) = self.answer().await? else { return Err("no step".to_owned().into()) };
        match done.reads.into_iter().next().and_then(|result| result.kind) {
            Some(read_result::Kind::Found(found)) => {
                let found = document::required(found.document.as_ref()).map_err(|error| error.to_string())?;
                cents(&found).ok_or_else(|| Failure::Other("an account without cents".to_owned()))
            }
            _ => Err("no account".to_owned().into()),
        }
    }

    async fn attempt(&mut self, Transfer { from, to, cents }: Transfer) -> std::result::Result<(), Failure> {
        self.send(Asked::Begin(v1::Begin::default()))?;
        self.ask_balance(from)?;
        let Told::Begun(_) = self.answer().await? else { return Err("not begun".to_owned().into()) };
        let has = self.balance().await?;
        self.ask_balance(to)?;
        let other_has = self.balance().await?;
        let put = |account, cents| put(account, cents).map_err(|error| error.to_string());
        let operations = vec![put(from, has - cents)?, put(to, other_has + cents)?];
        self.send(Asked::Commit(v1::Commit { operations, ..Default::default() }))?;
        match self.answer().await? {
            Told::Committed(_) => Ok(()),
            _ => Err("not committed".to_owned().into()),
        }
    }
}

impl Teller for Clerk {
    fn transfer(&mut self, transfer: Transfer) -> Done<'_> {
        Box::pin(async move {
            loop {
                match self.attempt(transfer).await {
                    Ok(()) => return Ok(()),
                    Err(Failure::Conflict) => {}
                    Err(Failure::Other(what)) => return Err(what.into()),
                }
            }
        })
    }
}

/// The balance of an account.
pub(super) fn cents(account: &Document) -> Option<i64> {
    match account.get("cents") {
        Some(Value::Int(cents)) => i64::try_from(*cents).ok(),
        _ => None,
    }
}

/// Stores the balance of an account.
pub(super) fn put(account: i64, cents: i64) -> Result<v1::Operation> {
    let document = Some(document::of(&doc! { "id": account, "cents": cents }, v1::DocumentForm::Msgpack)?);
    let put = v1::PutDocument { collection: ACCOUNTS.to_owned(), document, want_before: false };
    Ok(v1::Operation { kind: Some(operation::Kind::Put(put)) })
}
