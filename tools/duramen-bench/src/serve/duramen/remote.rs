//! A task that makes transfers by the client library: typed documents, in a closure that runs again after a
//! conflict.

use duramen::{Collection, Error, Reads as _, Tx as _};
use duramen_client::AsyncRemote;
use serde::{Deserialize, Serialize};

use crate::serve::server::{Done, Teller, Transfer};

#[derive(Serialize, Deserialize, Collection)]
#[collection(name = "accounts")]
struct Account {
    #[key]
    id: i64,
    cents: i64,
}

impl Teller for AsyncRemote {
    fn transfer(&mut self, Transfer { from, to, cents }: Transfer) -> Done<'_> {
        let balance = |found: Option<Account>| found.ok_or_else(|| Error::invalid("an account is missing"));
        Box::pin(async move {
            let done = self.transact(move |tx| {
                let (mut payer, mut payee) = (balance(tx.get(from)?)?, balance(tx.get(to)?)?);
                payer.cents -= cents;
                payee.cents += cents;
                tx.put(&payer)?;
                tx.put(&payee)
            });
            Ok(done.await?)
        })
    }
}
