// Asks a gateway as users of OpenAI's own client do. Arguments: the base URL, the key, the model.
import OpenAI from 'openai'

const [baseURL, apiKey, model] = process.argv.slice(2)
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 })
const messages = [{ role: 'user', content: 'hello' }]

const models = []
for await (const one of client.models.list()) models.push(one.id)
const retrieved = (await client.models.retrieve(model)).id
const whole = await client.chat.completions.create({ model, messages })
const words = []
for await (const part of await client.chat.completions.create({ model, messages, stream: true }))
  words.push(part.choices[0].delta.content)
const missing = await client.chat.completions
  .create({ model: 'nosuch', messages })
  .then(() => null, (error) => ({ status: error.status, code: error.code }))
console.log(
  JSON.stringify({ models, retrieved, content: whole.choices[0].message.content, usage: whole.usage, words, missing })
)
