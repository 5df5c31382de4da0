// Clients write to the console what these tests provoke; it is shown only if asked for.
if (!process.env.INTEROP_LOG) for (const m of ['error', 'warn', 'log', 'info', 'debug']) console[m] = () => {}

/**
 * Runs fn while nobody minds rejections that are never handled: some clients leave
 * one behind for every stream that breaks off, besides telling their app.
 */
export async function careless(fn) {
  const listeners = process.listeners('unhandledRejection')
  process.removeAllListeners('unhandledRejection').on('unhandledRejection', () => {})
  try {
    return await fn()
  } finally {
    await new Promise((ok) => setTimeout(ok, 50))
    process.removeAllListeners('unhandledRejection')
    for (const l of listeners) process.on('unhandledRejection', l)
  }
}
