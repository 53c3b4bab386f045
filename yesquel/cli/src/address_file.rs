//! `yesquel address-file`: a file that stands for a database.

use crate::failure::CliError;
use clap::Args;
use std::{fs::OpenOptions, io::Write, path::PathBuf};
use yesquel_sqlite::DatabaseAddress;

#[derive(Debug, Args)]
pub(crate) struct AddressFileArguments {
    /// Address of the database; a folder in it is relative to the file
    address: String,
    /// The new file
    file: PathBuf,
}

pub(crate) fn run(arguments: &AddressFileArguments) -> Result<(), CliError> {
    let AddressFileArguments { address, file } = arguments;
    DatabaseAddress::parse(address, []).map_err(|error| CliError::Usage(error.to_string()))?;
    let content = yesquel_sqlite::address_file(address)
        .ok_or_else(|| CliError::Usage("the address is too long for a file".to_owned()))?;
    let written = OpenOptions::new().write(true).create_new(true).open(file);
    let written = written.and_then(|mut file| file.write_all(&content));
    written.map_err(|error| CliError::File { path: file.clone(), error })
}
