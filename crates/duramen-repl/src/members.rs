//! The members of a cluster as bytes: in entries, and in the database's row.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use crate::types::{Membership, Peer};

/// The voters, and where each member is.
#[derive(Clone, PartialEq, Message)]
struct Members {
    /// One set of voters, or two while they change: then each has to agree.
    #[prost(message, repeated, tag = "1")]
    voters: Vec<Voters>,
    /// All members, with those that do not vote.
    #[prost(message, repeated, tag = "2")]
    members: Vec<Member>,
}

#[derive(Clone, PartialEq, Message)]
struct Voters {
    #[prost(uint64, repeated, tag = "1")]
    nodes: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Member {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(string, tag = "2")]
    address: String,
    #[prost(string, tag = "3")]
    serves: String,
}

pub(crate) fn encode(membership: &Membership) -> Vec<u8> {
    let voters = membership.get_joint_config().iter();
    let member = |(node, peer): (&u64, &Peer)| {
        let Peer { address, serves } = peer.clone();
        Member { node: *node, address, serves }
    };
    let encoded = Members {
        voters: voters.map(|nodes| Voters { nodes: nodes.iter().copied().collect() }).collect(),
        members: membership.nodes().map(member).collect(),
    };
    encoded.encode_to_vec()
}

/// # Errors
/// What is wrong with these bytes.
pub(crate) fn decode(bytes: &[u8]) -> Result<Membership, String> {
    let Members { voters, members } = Members::decode(bytes).map_err(|error| error.to_string())?;
    let voters: Vec<BTreeSet<u64>> =
        voters.into_iter().map(|voters| voters.nodes.into_iter().collect()).collect();
    let peer = |Member { node, address, serves }| (node, Peer { address, serves });
    let peers: BTreeMap<u64, Peer> = members.into_iter().map(peer).collect();
    Membership::new(voters, peers).map_err(|error| error.to_string())
}
