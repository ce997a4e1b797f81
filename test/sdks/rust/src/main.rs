//! Asks an agent, then restores the thread at another URL; prints the agent's texts of both.
use ag_ui_client::{Agent, HttpAgent, agent::AgentError};
use ag_ui_core::event::Event;
use ag_ui_core::types::{ids::MessageId, input::RunAgentInput, message::Message};
use futures::StreamExt;
use serde_json::{Value, json};
use std::{collections::BTreeMap, env, error::Error};
use uuid::Uuid;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().collect();
    let thread = Uuid::parse_str(&arguments[3])?;
    let question = vec![Message::User { id: MessageId::random(), content: "Hello".into(), name: None }];
    for (url, messages) in [(&arguments[1], question), (&arguments[2], vec![])] {
        let agent = HttpAgent::builder().with_url_str(url)?.build()?;
        let run = Uuid::parse_str(&arguments[4 + messages.is_empty() as usize])?;
        let input = RunAgentInput::<Value, Value>::new(thread, run, json!({}), messages, vec![], vec![], json!({}));
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        let mut events = agent.run(&input).await?;
        while let Some(event) = events.next().await {
            let event = match event {
                // 0.1.0 takes a block without data, such as the first one of /v1/connect and keep-alives, for an empty event.
                Err(AgentError::SerializationError { source }) if source.is_eof() && source.column() == 0 => continue,
                event => event?,
            };
            match event {
                Event::TextMessageContent(e) => texts.entry(e.message_id.to_string()).or_default().push_str(&e.delta),
                Event::MessagesSnapshot(e) => {
                    for message in e.messages {
                        if let Message::Assistant { id, content: Some(text), .. } = message {
                            texts.insert(id.to_string(), text);
                        }
                    }
                }
                _ => {}
            }
        }
        println!("{}", json!(texts));
    }
    Ok(())
}
