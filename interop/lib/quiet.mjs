// Clients write to the console what these tests provoke; it is shown only if asked for.
if (!process.env.INTEROP_LOG) for (const m of ['error', 'warn', 'log', 'info', 'debug']) console[m] = () => {}
