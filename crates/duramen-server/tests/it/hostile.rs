//! What strangers send: each gets an error or a closed connection, and the next client an answer.
