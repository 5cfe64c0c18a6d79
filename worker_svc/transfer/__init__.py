"""Blocks of running requests, on their way from one worker's KV cache to another's (docs/design.md, TR).

The worker that gives is the *source*, the one that takes the *target*. Between them blocks go by a *channel*:

| channel | how | where |
|---|---|---|
| shared memory | the target maps the source's cache, read-only, and copies rows | on one machine |
| tcp | a connection beside the control stream, rows from memory to memory | between machines |
| inline | bytes in messages of the control stream | everywhere |

Source, for its whole life:

    server = open_server(settings, memory)  # memory: blocks_of(runner)
    server.register(token, may_read)        # token: new_token(), for one pull
    offer = server.offer(token)             # TransferOffer, for the control stream
    server.withdraw(token)                  # behind it nothing of that pull is read here any more
    server.close()

Target, in a thread of transfers, for one pull:

    reader = choose(offer, memory)          # None: no channel opens, and blocks come inline
    reader.read(group, source_blocks, target_blocks)    # returns when they are in `memory`; TransferError
    reader.close()                          # also from another thread: a read that waits then fails

Inline: `memory.read(group, blocks)` is the bytes of one message at the source, and
`memory.write(group, blocks, content)` takes them in at the target.

A runner whose blocks can travel has a `block_memory` (`OffersBlocks`). All of it runs beside the steps: who reads or
writes a block has made sure that no step touches it.
"""
