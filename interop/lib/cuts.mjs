// Resume at every wire message: the client's end state must be that of a client
// that never dropped.
import assert from 'node:assert/strict'
import { Proxy } from './proxy.mjs'

/**
 * Runs a client once without a cut, then once for each of its wire messages with
 * the connection cut after it, and compares what the client ends up with.
 *
 * @param {(url: string, n: number) => Promise<any>} run has a client do everything against url,
 *   reconnecting as that client does, and returns its final state; n is 0 for the
 *   uncut run and k for the cut after message k: the same run may be attached to
 *   again, or a new one made whose ids are normalized by the caller
 * @param {object} [o] also passed to Proxy (shred, to)
 * @param {(k: number) => boolean} [o.only] which cuts
 * @param {number} [o.parallel] how many at a time (4)
 * @returns how many messages and cuts there were
 */
export async function everyCut(run, o = {}) {
  const { state: want, proxy } = await once(run, 0, o)
  assert.equal(proxy.cuts, 0)
  assert(proxy.messages > 1, `only ${proxy.messages} messages: nothing to cut`)
  let cuts = 0
  await each(proxy.messages, o, async (k) => {
    const cut = await once(run, k, { ...o, after: k })
    assert.equal(cut.proxy.cuts, 1, `the stream was not cut after ${k} of ${proxy.messages}`)
    assert.deepEqual(cut.state, want, `cut after message ${k} of ${proxy.messages}: another end state`)
    const at = cut.proxy.requests.map((r) => r.edge)
    assert(new Set(at).size > 1, `cut after message ${k}: the client did not come back to another edge`)
    cuts++
  })
  return { messages: proxy.messages, cuts, state: want }
}

/**
 * The control: the same with a client that comes back with the id before its
 * last one (or whatever tamper does). How many cuts end in another state or an
 * error; a test that cannot tell proves nothing.
 *
 * A cut may take with it all that the client had not read yet. Where it had read
 * nothing, nobody comes back too early, and the cut is tried again.
 *
 * @param {(url: string, n: number, early: () => void) => Promise<any>} run as everyCut's; one that comes
 *   too early by itself calls early
 * @param {object} [o] as everyCut's; tamper returns true where it has changed what is asked
 * @returns how many cuts there were, of how many messages, after how many of them
 *   somebody came too early, and how many of those were wrong
 */
export async function offByOne(run, o = {}) {
  const tamper = o.tamper ?? oneBack
  const { state: want, proxy } = await once(run, 0, o)
  const count = { messages: proxy.messages, cuts: 0, early: 0, wrong: 0 }
  await each(proxy.messages, o, async (k) => {
    count.cuts++
    let came = false
    const early = () => { came = true }
    for (let tries = 0; !came && tries < 10; tries++) {
      let right = false
      try {
        const cut = await once(run, k, { ...o, after: k, early, tamper: (ask, ids) => { if (tamper(ask, ids)) early() } })
        assert.deepEqual(cut.state, want)
        right = true
      } catch { /* as it should be */ }
      if (!came) continue
      count.early++
      if (!right) count.wrong++
    }
  })
  assert(count.early > 0 || count.cuts === 0, 'nobody came too early')
  return count
}

function oneBack(ask, ids) {
  const at = ids.indexOf(ask.headers['last-event-id'])
  if (at <= 0) return false
  ask.headers['last-event-id'] = ids[at - 1] || '0'
  return true
}

async function once(run, k, o) {
  const proxy = await Proxy.start(o)
  try {
    return { state: await run(proxy.url, k, o.early), proxy }
  } finally {
    await proxy.stop()
  }
}

// each calls fn with 1 … n-1, a few at a time.
async function each(n, { only = () => true, parallel = 4 }, fn) {
  const ks = Array.from({ length: n - 1 }, (_, i) => i + 1).filter(only)
  await Promise.all(Array.from({ length: parallel }, async () => {
    for (let k; (k = ks.shift()) !== undefined; ) await fn(k)
  }))
}
