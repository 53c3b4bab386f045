//! A view of an article by a reader without an account, in the traced order.

use super::{
    client::WikiClient,
    text::{References, title},
};
use crate::Result;

impl WikiClient<'_> {
    /// Views an article. Returns its text.
    pub(crate) fn view(&mut self, article: u64) -> Result<String> {
        let name = title(article);
        let committed = self.wiki.committed(article);
        let text = self.transaction(false, |client| {
            let rows = client.query("page", &[name.as_str().into()])?;
            let revision = client.revision_of(rows.only()?)?;
            revision.check_age(committed)?;
            client.query("roles", &[])?.only()?;
            client.query("models", &[])?.only()?;
            client.query("restrictions", &[revision.page.into()])?;
            let text = client.text_of(&revision)?;
            let references = References::of(&text).without(&name);
            client.parse(&references)?;
            if !references.categories.is_empty() {
                client.query_list("categories", &[], &references.categories)?;
            }
            Ok(text)
        })?;
        // After the article, the page's frame.
        self.transaction(false, |client| {
            client.query("talk", &[name.as_str().into()])?;
            let address = client.address.clone();
            client.query("newtalk", &[address.into()])?;
            client.query("styles", &[])?;
            Ok(())
        })?;
        Ok(text)
    }
}
