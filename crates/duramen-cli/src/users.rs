//! `duramen user` and `duramen token`: who may use a served database, and what each may do.

use duramen::{Code, Durability, Value, doc};

use crate::args::{
    DatabaseArgs, TokenAddArgs, TokenArgs, TokenCommand, TokenRevokeArgs, UserArgs, UserCommand,
    UserNamedArgs, UserRightsArgs,
};
use crate::backend::{KnownUser, Reading, Writing};
use crate::failure::{FAILED, Failure, Result};
use crate::output::{Output, new_table, printable};

/// Runs `duramen user`.
pub(crate) fn user(args: &UserArgs, out: Output) -> Result<()> {
    match &args.what {
        UserCommand::Add(args) => put_user(args, ("user_add", "added"), true, out),
        UserCommand::Set(args) => put_user(args, ("user_set", "changed"), false, out),
        UserCommand::Drop(args) => drop_user(args, out),
        UserCommand::List(args) => list_users(&args.database, out),
    }
}

/// Runs `duramen token`.
pub(crate) fn token(args: &TokenArgs, out: Output) -> Result<()> {
    match &args.what {
        TokenCommand::Add(args) => add_token(args, out),
        TokenCommand::Revoke(args) => revoke_token(args, out),
        TokenCommand::List(args) => list_tokens(&args.database, out),
    }
}

fn put_user(args: &UserRightsArgs, (kind, verb): (&str, &str), is_new: bool, out: Output) -> Result<()> {
    let db = Writing::open(&args.database, Durability::Disk)?;
    let user = KnownUser {
        name: args.name.clone(),
        rights: args.rights.clone(),
        certificates: args.certificates.clone(),
    };
    db.put_user(user, is_new)?;
    db.close()?;
    if out.is_json() {
        let fields = doc! {
            "name": args.name.as_str(), "rights": texts(&args.rights), "certificates": texts(&args.certificates),
        };
        return out.object(kind, fields);
    }
    let certificates = match &args.certificates[..] {
        [] => String::new(),
        names => format!("; certificates of {}", names.join(", ")),
    };
    let shown = format!("{}{}", rights_shown(&args.rights), printable(&certificates));
    out.line(&format!("{verb} the user {}: {shown}", printable(&args.name)))?;
    if is_new && args.certificates.is_empty() {
        out.note("`duramen token add` makes a token for it");
    }
    Ok(())
}

fn drop_user(args: &UserNamedArgs, out: Output) -> Result<()> {
    let db = Writing::open(&args.database, Durability::Disk)?;
    let was_there = db.drop_user(&args.name)?;
    db.close()?;
    if !was_there {
        return Err(absent(format!("there is no user {}", args.name), "`duramen user list` has all"));
    }
    if out.is_json() {
        return out.object("user_drop", doc! { "name": args.name.as_str() });
    }
    out.line(&format!("dropped the user {} and its tokens", printable(&args.name)))
}

fn list_users(database: &DatabaseArgs, out: Output) -> Result<()> {
    let (users, _) = Reading::open(database)?.users()?;
    if out.is_json() {
        let users = users.iter().map(|user| {
            Value::Map(doc! {
                "name": user.name.as_str(), "rights": texts(&user.rights),
                "certificates": texts(&user.certificates),
            })
        });
        return out.object("users", doc! { "users": users.collect::<Vec<_>>() });
    }
    if users.is_empty() {
        out.note("no users: `duramen user add` adds one");
        return Ok(());
    }
    let mut table = new_table(&["user", "rights", "certificates"]);
    for user in &users {
        let certificates = user.certificates.join(", ");
        table.add_row([&user.name, &rights_shown(&user.rights), &certificates].map(|text| printable(text)));
    }
    out.table(&table)
}

fn add_token(args: &TokenAddArgs, out: Output) -> Result<()> {
    let db = Writing::open(&args.database, Durability::Disk)?;
    let (token, text) = db.add_token(&args.user, args.days)?;
    db.close()?;
    if out.is_json() {
        let fields = doc! {
            "id": token.id, "user": token.user, "token": text, "created": token.created, "expires": token.expires,
        };
        return out.object("token_add", fields);
    }
    out.line(&text)?;
    out.note(&format!(
        "it is printed this once, and valid until {}; `duramen token revoke DB {}` ends it",
        token.expires, token.id
    ));
    Ok(())
}

fn revoke_token(args: &TokenRevokeArgs, out: Output) -> Result<()> {
    let db = Writing::open(&args.database, Durability::Disk)?;
    let was_there = db.revoke_token(&args.id)?;
    db.close()?;
    if !was_there {
        return Err(absent(format!("there is no token {}", args.id), "`duramen token list` has all ids"));
    }
    if out.is_json() {
        return out.object("token_revoke", doc! { "id": args.id.as_str() });
    }
    out.line(&format!("revoked the token {}", printable(&args.id)))
}

fn list_tokens(database: &DatabaseArgs, out: Output) -> Result<()> {
    let (_, tokens) = Reading::open(database)?.users()?;
    if out.is_json() {
        let tokens = tokens.into_iter().map(|token| {
            Value::Map(doc! {
                "id": token.id, "user": token.user, "created": token.created, "expires": token.expires,
            })
        });
        return out.object("tokens", doc! { "tokens": tokens.collect::<Vec<_>>() });
    }
    if tokens.is_empty() {
        out.note("no tokens: `duramen token add` makes one");
        return Ok(());
    }
    let mut table = new_table(&["id", "user", "created", "expires"]);
    for token in &tokens {
        let times = [token.created.to_string(), token.expires.to_string()];
        let [created, expires] = times;
        table.add_row([printable(&token.id), printable(&token.user), created, expires]);
    }
    out.table(&table)
}

fn texts(rights: &[String]) -> Vec<Value> {
    rights.iter().map(|right| Value::from(right.as_str())).collect()
}

fn rights_shown(rights: &[String]) -> String {
    if rights.is_empty() { "no rights".to_owned() } else { rights.join(", ") }
}

fn absent(what: String, hint: &str) -> Failure {
    Failure::said(FAILED, Code::NoSuchKey, what, hint)
}
