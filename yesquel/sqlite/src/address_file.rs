//! Small files that hold the address of a database, for programs that insist on a path.
//!
//! The first line of a text file may be an address. A SQLite database may hold one as well: its
//! schema has one entry, whose text is the address. SQLite itself refuses it with a message that
//! contains the entry's name, and so tells that the program runs without this library.

use crate::{key::Field, record::RecordFields, secrets::anchored};
use std::{
    fs::{self, File},
    io::Read,
    path::Path,
};

/// Prefix of all addresses.
pub(crate) const SCHEME: &str = "yesquel:";

/// Size below which a file may hold an address.
const FILE_BYTES_MAX: u64 = 4096;

/// Start of each SQLite database.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Application id of a database that holds an address: "Ysql".
const APPLICATION: [u8; 4] = *b"Ysql";
/// Name of the schema's entry, which SQLite shows as the name of a malformed object.
const NOTICE: &str =
    "this file holds the address of a Yesquel database and no data: run the program with libyesquel";

const HEADER_BYTES: usize = 100;
/// A page's header, and the place of its only cell.
const PAGE_HEADER_BYTES: usize = 8 + 2;
const PAGE_SIZES: [usize; 3] = [512, 1024, 2048];

/// Returns the address that a name is or that the file of this name holds. Folders in a file are
/// relative to it.
pub(crate) fn of_name(name: &str) -> Option<String> {
    if name.starts_with(SCHEME) {
        return Some(name.to_owned());
    }
    let path = Path::new(name);
    let known = fs::metadata(path).ok()?;
    if !known.is_file() || known.len() <= SCHEME.len() as u64 || known.len() >= FILE_BYTES_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let address = if bytes.starts_with(MAGIC) {
        in_schema(&bytes)?
    } else {
        std::str::from_utf8(&bytes).ok()?.lines().next()?
    };
    let folder = fs::canonicalize(path).ok()?.parent()?.to_str()?.to_owned();
    let address = anchored(address.trim_end(), &folder);
    let rest = address.strip_prefix(SCHEME)?;
    if rest.is_empty() || rest.starts_with(['/', '?']) {
        return Some(address);
    }
    Some(format!("{SCHEME}{folder}/{rest}"))
}

/// Returns the address in the schema of a database.
fn in_schema(file: &[u8]) -> Option<&str> {
    if file.get(68..72)? != APPLICATION {
        return None;
    }
    let place = file.get(HEADER_BYTES + 8..HEADER_BYTES + PAGE_HEADER_BYTES)?;
    let cell = file.get(usize::from(u16::from_be_bytes(place.try_into().ok()?))..)?;
    // The length of the record and the row's number, which is small.
    let length = 1 + usize::from(*cell.first()? >= 0x80);
    match RecordFields::of(cell.get(length + 1..)?)?.nth(4)? {
        Ok(Field::Text(address)) => std::str::from_utf8(address).ok(),
        _ => None,
    }
}

/// Appends a number of at most 14 bits as SQLite's varint.
fn push_varint(out: &mut Vec<u8>, number: usize) {
    if number >= 0x80 {
        out.push((number >> 7) as u8 | 0x80);
    }
    out.push(number as u8 & 0x7f);
}

/// Returns the content of a database that holds an address; `None` if the address is too long.
pub(crate) fn content(address: &str) -> Option<Vec<u8>> {
    let texts = ["table", NOTICE, "yesquel", address];
    let mut types = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        push_varint(&mut types, text.len() * 2 + 13);
        if index == 2 {
            // The root page 1.
            types.push(9);
        }
    }
    let mut record = vec![types.len() as u8 + 1];
    record.extend(types);
    record.extend(texts.concat().bytes());
    let mut cell = Vec::new();
    push_varint(&mut cell, record.len());
    cell.push(1);
    cell.extend(record);
    let page_bytes = PAGE_SIZES.into_iter().find(|size| {
        // SQLite stores what is longer elsewhere.
        HEADER_BYTES + PAGE_HEADER_BYTES + cell.len() <= *size && cell.len() <= size - 35
    })?;
    let mut page = MAGIC.to_vec();
    page.extend((page_bytes as u16).to_be_bytes());
    // A rollback journal, no reserved bytes, and the fractions that SQLite demands.
    page.extend([1, 1, 0, 64, 32, 32]);
    let numbers =
        |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
    // Change counter, pages, free pages (2), schema cookie and format, cache, root, UTF-8, version,
    // vacuum.
    page.extend(numbers(&[1, 1, 0, 0, 1, 4, 0, 0, 1, 0, 0]));
    page.extend(APPLICATION);
    page.resize(HEADER_BYTES - 8, 0);
    // The change counter again, and the version of SQLite that wrote it.
    page.extend(numbers(&[1, libsqlite3_sys::SQLITE_VERSION_NUMBER as u32]));
    let start = (page_bytes - cell.len()) as u16;
    // A leaf of a table with one cell.
    page.extend([13, 0, 0, 0, 1]);
    page.extend(start.to_be_bytes());
    page.push(0);
    page.extend(start.to_be_bytes());
    page.resize(page_bytes - cell.len(), 0);
    page.extend(cell);
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_may_contain_an_address() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let name = |file: &str| folder.join(file).to_str().unwrap().to_owned();
        fs::write(name("served"), "yesquel://db:7000/shop  \n# of the shop\n").unwrap();
        fs::write(name("beside"), "yesquel:data?durability=none").unwrap();
        fs::write(name("other"), "# yesquel:data\n").unwrap();
        fs::write(name("large"), format!("yesquel:data\n{}", " ".repeat(4096))).unwrap();
        fs::write(name("in_schema"), content("yesquel:data").unwrap()).unwrap();
        assert_eq!(of_name("yesquel:data").as_deref(), Some("yesquel:data"));
        assert_eq!(of_name(&name("served")).as_deref(), Some("yesquel://db:7000/shop"));
        assert_eq!(of_name(&name("beside")), Some(format!("yesquel:{}?durability=none", name("data"))));
        assert_eq!(of_name(&name("in_schema")), Some(format!("yesquel:{}", name("data"))));
        for none in ["other", "large", "absent", "."] {
            assert_eq!(of_name(&name(none)), None, "{none}");
        }
    }

    #[test]
    fn addresses_of_all_lengths_are_held() {
        for length in 1..1900 {
            let address = format!("yesquel:{}", "x".repeat(length));
            let Some(content) = content(&address) else {
                assert!(length > 1700, "{length}");
                continue;
            };
            assert_eq!(in_schema(&content), Some(&*address), "{length}");
            // A damaged file gives no panic.
            for cut in [0, 70, 100, 109, 400, content.len() - 1] {
                assert_eq!(in_schema(&content[..cut.min(content.len())]), None);
            }
        }
    }
}
