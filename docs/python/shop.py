"""A shop in Python, on a database that `duramen serve` or a program of yours serves.

docs/server.md says how its code for the calls is generated. Then:

    PYTHONPATH=. python docs/python/shop.py shop.duramen

It takes the address and the token from the database's directory. On another machine give both, and the certificate of
the authority of the server's: `shop.py HOST:PORT TOKEN ca.pem`.
"""

import json
import os
import pathlib
import sys
import time

import grpc

from duramen.v1 import data_pb2 as data, feed_pb2 as feed, values_pb2 as values
from duramen.v1.data_pb2_grpc import DataStub
from duramen.v1.feed_pb2_grpc import FeedStub

JSON = data.DOCUMENT_FORM_JSON

# A conflict; in doubt; the server is away; it gave no answer in time.
AGAIN = [
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
]


def connect(arguments):
    """The services of a server, which know the caller by the token in each call."""
    authority = None
    if len(arguments) > 1:
        address, token, *authority = arguments
    else:
        directory = pathlib.Path(arguments[0])
        address = json.loads((directory / "serve.json").read_text())["addresses"][0]
        token = (directory / "serve.token").read_text().strip()
    if authority:
        trusted = grpc.ssl_channel_credentials(pathlib.Path(authority[0]).read_bytes())
        channel = grpc.secure_channel(address, trusted)
    else:
        channel = grpc.insecure_channel(address)
    return DataStub(channel), FeedStub(channel), [("authorization", f"Bearer {token}")]


class Shop:
    def __init__(self, stub, metadata):
        self.stub, self.metadata = stub, metadata
        hello = stub.Hello(data.HelloRequest(version_min=1, version_max=1, client="shop.py"), metadata=metadata)
        clock = hello.request_clock
        self.ahead = clock.seconds + clock.nanoseconds / 1e9 - time.monotonic()

    def request_id(self):
        """A UUID of version 7 by the server's clock: a batch with it has its effect once, however often it is sent."""
        milliseconds = int((time.monotonic() + self.ahead) * 1000)
        made = bytearray(milliseconds.to_bytes(6, "big") + os.urandom(10))
        made[6] = made[6] & 0x0F | 0x70
        made[8] = made[8] & 0x3F | 0x80
        return bytes(made)

    def batch(self, *operations, conditions=(), reads=()):
        """One transaction. After a lost connection the same request is sent again, for 30 seconds."""
        request = data.BatchRequest(
            write=data.Write(request_id=self.request_id()),
            conditions=conditions,
            operations=operations,
            reads=reads,
            form=JSON,
        )
        until, wait = time.monotonic() + 30, 0.02
        while True:
            try:
                return self.stub.Batch(request, metadata=self.metadata, timeout=10)
            except grpc.RpcError as error:
                if error.code() not in AGAIN or time.monotonic() + wait > until:
                    raise
                time.sleep(wait)
                wait = min(2 * wait, 1)

    def read(self, *reads):
        """Reads of one state."""
        return self.stub.Read(data.ReadRequest(reads=reads, form=JSON), metadata=self.metadata).results


def document(fields):
    return values.Document(json=json.dumps(fields))


def key(*elements):
    made = [values.Element(int_value=e) if isinstance(e, int) else values.Element(text_value=e) for e in elements]
    return values.Key(elements=made)


def put(collection, fields):
    return data.Operation(put=data.PutDocument(collection=collection, document=document(fields)))


def sell(shop, order, city, cents):
    """Stores an order and takes an apple from the stock: both or nothing. Returns whether there was one."""
    stock = shop.read(data.Read(get_key_value=data.KeyValueKey(namespace="stock", key=key("apples"))))[0].value
    left = json.loads(stock.value.json)
    if left == 0:
        return False
    same = data.Condition(
        key_value_is=data.KeyValueIs(namespace="stock", key=key("apples"), value=stock.value)
    )
    done = shop.batch(
        put("sales", {"id": order, "city": city, "cents": cents}),
        data.Operation(increment=data.Increment(namespace="stock", key=key("apples"), by=-1)),
        conditions=[same],
    )
    # Somebody else was faster: look again.
    return sell(shop, order, city, cents) if done.failed_condition else True


def main(arguments):
    stub, changes, metadata = connect(arguments)
    shop = Shop(stub, metadata)
    shop.batch(
        data.Operation(ensure=data.EnsureCollection(collection="sales", key=["city", "id"], sums=["cents"])),
        data.Operation(
            put_key_value=data.PutKeyValue(namespace="stock", key=key("apples"), value=data.Value(json="3"))
        ),
    )
    consumer = changes.RegisterConsumer(
        feed.RegisterConsumerRequest(name="mailer", start=feed.WATCH_START_NOW), metadata=metadata
    ).consumer
    sold = [sell(shop, order, city, cents) for order, city, cents in
            [(1, "Oslo", 1250), (2, "Oslo", 750), (3, "Rome", 200), (4, "Rome", 100)]]
    print("sold:", sold)

    oslo = data.RangeOf(collection="sales", range=values.Range(prefix=key("Oslo")))
    reduction = shop.read(data.Read(reduce=oslo))[0].reduction
    print("Oslo:", reduction.count, "orders,", reduction.sums[0].sum, "cents")

    scanned = stub.Scan(data.ScanRequest(collection="sales", form=JSON), metadata=metadata)
    print("all:", [json.loads(found.json)["id"] for reply in scanned for found in reply.documents])

    # Each sale is mailed once: the mail and the consumer's new position are one transaction.
    mails = []
    watched = changes.Watch(
        feed.WatchRequest(consumer="mailer", collections=["sales"], form=JSON, ends=True), metadata=metadata
    )
    position, work = consumer.position.seq, []
    for reply in watched:
        for change in reply.changes:
            sale = json.loads(change.document.json)
            mails.append(sale["id"])
            work.append(
                data.Operation(put_key_value=data.PutKeyValue(
                    namespace="mails", key=key(sale["id"]), value=data.Value(json=json.dumps(sale["city"]))
                ))
            )
        if reply.HasField("position"):
            advance = data.AdvanceConsumer(name="mailer", **{"from": position}, to=reply.position.seq)
            shop.batch(*work, data.Operation(advance_consumer=advance))
            position, work = reply.position.seq, []
    print("mailed:", mails)


if __name__ == "__main__":
    main(sys.argv[1:])
