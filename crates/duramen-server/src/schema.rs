//! The service `Schema`: what collections there are.

use duramen::error::{Code, Error, Result};
use duramen::view::KeyField;
use duramen::{AsyncDb, Reads as _, Schema, Snapshot};
use duramen_proto::v1::{self, schema_server};
use prost::Message as _;
use tonic::{Request, Response, Status};

use crate::data::{Room, call_of, refused};

/// The collections of a database.
#[derive(Clone)]
pub(crate) struct SchemaService {
    db: AsyncDb,
}

impl SchemaService {
    pub(crate) fn new(db: AsyncDb) -> SchemaService {
        SchemaService { db }
    }
}

#[tonic::async_trait]
impl schema_server::Schema for SchemaService {
    async fn collections(
        &self,
        request: Request<v1::CollectionsRequest>,
    ) -> std::result::Result<Response<v1::CollectionsReply>, Status> {
        let call = call_of(&request);
        call.take_place().await.map_err(refused)?;
        let names = request.into_inner().names;
        let read = move |snapshot: &Snapshot| collections(snapshot, &names, &mut Room::new(&call));
        let collections = self.db.read(read).await.map_err(refused)?;
        Ok(Response::new(v1::CollectionsReply { collections }))
    }
}

fn collections(snapshot: &Snapshot, names: &[String], room: &mut Room<'_>) -> Result<Vec<v1::Collection>> {
    let mut fits = |found: v1::Collection| room.take(found.encoded_len()).map(|()| found);
    if names.is_empty() {
        return snapshot.collections()?.iter().map(|schema| fits(collection(schema)?)).collect();
    }
    names.iter().map(|name| fits(named(snapshot, name)?)).collect()
}

fn named(snapshot: &Snapshot, name: &str) -> Result<v1::Collection> {
    match snapshot.documents(name).schema() {
        Ok(schema) => collection(&schema),
        Err(error) if error.code() == Code::NoSuchTree => {
            let names: Vec<String> =
                snapshot.collections()?.iter().map(|schema| schema.name().to_owned()).collect();
            let hint = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
            Err(Error::new(Code::NoSuchTree, error.message()).with_hint(format!("there is: {hint}")))
        }
        Err(error) => Err(error),
    }
}

fn collection(schema: &Schema) -> Result<v1::Collection> {
    let columns = schema
        .columns()
        .iter()
        .map(|column| v1::Column { name: column.name.clone(), r#type: column.kind.to_string() });
    let views = schema.views().iter().map(|view| v1::View {
        name: view.name().to_owned(),
        key: view.key_fields().iter().map(KeyField::name).map(str::to_owned).collect(),
    });
    Ok(v1::Collection {
        name: schema.name().to_owned(),
        key: schema.key_columns().to_vec(),
        columns: columns.collect(),
        sums: schema.sum_columns().to_vec(),
        views: views.collect(),
        definition: schema.to_bytes()?.into(),
    })
}
