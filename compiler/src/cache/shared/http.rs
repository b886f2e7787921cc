//! A server that keeps what is put at an address: GET and PUT. What it gives is hashed, so the connection need not be secret; only readers of what others
//! may not see need one that is.

use super::{LARGEST, Store};
use std::time::Duration;
use ureq::Agent;

pub struct Http {
    agent: Agent,
    address: String,
}

impl Http {
    /// The server at an address. Each answer, with all of its bytes, is there in time or an error.
    pub fn new(address: &str, patience: Duration) -> Http {
        let config = Agent::config_builder()
            .timeout_global(Some(patience))
            .http_status_as_error(false)
            // Entries are where they were asked for, or nowhere.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None);
        Http { agent: config.build().into(), address: address.trim_end_matches('/').to_string() }
    }

    fn entry(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }
}

impl Store for Http {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let mut answer = self.agent.get(self.entry(name)).call().map_err(|e| e.to_string())?;
        match answer.status().as_u16() {
            200 => answer.body_mut().with_config().limit(LARGEST).read_to_vec().map(Some).map_err(|e| e.to_string()),
            404 => Ok(None),
            _ => Err(format!("it answers {}", answer.status())),
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let answer = self.agent.put(self.entry(name)).send(bytes).map_err(|e| e.to_string())?;
        if answer.status().is_success() { Ok(()) } else { Err(format!("it answers {}", answer.status())) }
    }
}
