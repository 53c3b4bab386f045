#!/usr/bin/env python3
"""A driver for Serval in Python, with the standard library's sqlite3: the protocol of docs/driver-protocol.md.

    serval bench workloads/workloada --store driver -p driver.command="python3 drivers/python/sqlite_driver.py FILE"
"""
import os, sqlite3, struct, sys, time  # noqa: E401

HELLO, PREPARE, OPEN, CLOSE, READ, UPDATE, INSERT, SCAN, DELETE, INSERT_BATCH = range(1, 11)
OK, ERROR, NOT_FOUND, BAD_REQUEST = 0, 2, 3, 6
WELCOME, RESULT, ALL_VERBS, BATCHES = 1, 3, 0b11111, 1 << 5


class Body:
    """Reader of a frame's body."""
    def __init__(self, frame):
        self.frame, self.at = frame, 1

    def number(self, form):
        (value,) = struct.unpack_from("<" + form, self.frame, self.at)
        self.at += struct.calcsize(form)
        return value

    def bytes(self):
        length = self.number("I")
        self.at += length
        return self.frame[self.at - length : self.at]

    def text(self):
        return self.bytes().decode()

    def list(self, item):
        return [item() for _ in range(self.number("I"))]

    def record(self):
        return self.list(lambda: (self.text(), self.bytes()))


def put_bytes(data):
    return struct.pack("<I", len(data)) + data


def put_record(record):
    return struct.pack("<I", len(record)) + b"".join(put_bytes(n.encode()) + put_bytes(v) for n, v in record)


def frame(kind, body):
    return struct.pack("<IB", len(body) + 1, kind) + body


class Store:
    """The store under test, with one row per field. One connection serves all clients, one request at a time."""
    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript("pragma journal_mode = wal; pragma synchronous = normal")
        self.clients = set()

    def prepare(self, load):
        if load:
            self.db.execute("create table if not exists records (key, field, value, primary key (key, field))")
        self.db.execute("select 1 from records limit 1")  # Fails if the table does not exist.

    def insert(self, records):
        with self.db:
            self.db.execute("begin immediate")
            rows = ((key, name, value) for key, record in records for name, value in record)
            self.db.executemany("insert into records values (?, ?, ?)", rows)
        return OK, []

    def read(self, key, fields):
        rows = self.db.execute("select field, value from records where key = ?", (key,)).fetchall()
        return (OK, [[row for row in rows if not fields or row[0] in fields]]) if rows else (NOT_FOUND, [])

    def update(self, key, record):
        with self.db:
            self.db.execute("begin immediate")
            if self.read(key, None)[0] == OK:
                rows = [(key, name, value) for name, value in record]
                self.db.executemany("insert or replace into records values (?, ?, ?)", rows)
                return OK, []
        return NOT_FOUND, []

    def scan(self, start, count, fields):
        query = "select distinct key from records where key >= ? order by key limit ?"
        keys = self.db.execute(query, (start, min(count, 1 << 40))).fetchall()
        return OK, [self.read(key, fields)[1][0] for (key,) in keys]

    def delete(self, key):
        return (OK if self.db.execute("delete from records where key = ?", (key,)).rowcount else NOT_FOUND), []

    def verb(self, kind, body):
        """Decodes a request. Returns a function that performs it."""
        body.text()  # The table's name; the store has one table.
        if kind == INSERT_BATCH:
            records = body.list(lambda: (body.text(), body.record()))
            return lambda: self.insert(records)
        key = body.text()
        if kind in (READ, SCAN):
            count = body.number("Q") if kind == SCAN else 0
            fields = set(body.list(body.text))
            return lambda: self.read(key, fields) if kind == READ else self.scan(key, count, fields)
        if kind == DELETE:
            return lambda: self.delete(key)
        record = body.record()
        return lambda: self.update(key, record) if kind == UPDATE else self.insert([(key, record)])

    def answer(self, kind, body):
        """Answers a request. Returns its status, records and service time, ns."""
        if kind == PREPARE:
            self.prepare(load=body.number("B") == 0)
            return OK, [], 0
        client = body.number("I")
        if kind == OPEN:
            self.clients.add(client)
        elif kind not in range(CLOSE, INSERT_BATCH + 1) or client not in self.clients:
            return BAD_REQUEST, [], 0
        elif kind == CLOSE:
            self.clients.remove(client)
        else:
            perform = self.verb(kind, body)
            start = time.perf_counter_ns()
            return *perform(), time.perf_counter_ns() - start
        return OK, [], 0


def answer(store, request):
    kind, body = request[0], Body(request)
    if kind == HELLO:
        fact = put_bytes(b"version") + put_bytes(sqlite3.sqlite_version.encode())
        name = struct.pack("<H", 1) + put_bytes(b"sqlite3 in Python")
        return frame(WELCOME, name + struct.pack("<II", ALL_VERBS | BATCHES, 1) + fact)
    number, message = body.number("I"), ""
    try:
        status, records, took = store.answer(kind, body)
    except sqlite3.Error as error:
        status, records, took, message = ERROR, [], 0, str(error)
    head = struct.pack("<IBQ", number, status, took) + put_bytes(message.encode())
    return frame(RESULT, head + struct.pack("<I", len(records)) + b"".join(map(put_record, records)))


store, data = Store(sys.argv[1] if len(sys.argv) > 1 else ":memory:"), b""
while chunk := os.read(0, 1 << 20):
    data, at, answers = data + chunk, 0, []
    # One read may return many requests; their answers leave in one write.
    while len(data) >= at + 4 and len(data) >= at + 4 + (length := struct.unpack_from("<I", data, at)[0]):
        answers.append(answer(store, data[at + 4 : at + 4 + length]))
        at += 4 + length
    data, out = data[at:], b"".join(answers)
    while out:
        out = out[os.write(1, out) :]
