//! Kinds of inputs.

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

fn documents_of(folders: &Folders, inputs: &[&str], split_on: SplitOn) -> Vec<Vec<String>> {
    run(&PreprocessConfig {
        split_on,
        ..folders.config(inputs)
    })
    .unwrap();
    folders.documents("text_document")
}

#[test]
fn text_is_split_where_asked() {
    let folders = Folders::new();
    let text = "\n one\r\ntwo\r\n\r\n \t\nthree\n\n\nfour";
    let input = folders.file("a.txt", text);
    assert_eq!(documents_of(&folders, &[&input], SplitOn::File), whole(&[text]));
    let expected = whole(&[" one\r\ntwo", "three", "four"]);
    assert_eq!(documents_of(&folders, &[&input], SplitOn::BlankLine), expected);
    assert_eq!(
        documents_of(&folders, &[&input], SplitOn::Line),
        whole(&[" one", "two", "three", "four"])
    );
    let empty = folders.file("empty.txt", "");
    assert_eq!(
        documents_of(&folders, &[&empty, &input], SplitOn::File),
        whole(&["", text])
    );
    assert!(documents_of(&folders, &[&empty], SplitOn::Line).is_empty());
    let marked = folders.file("marked.txt", "\u{FEFF}mark");
    assert_eq!(documents_of(&folders, &[&marked], SplitOn::File), whole(&["mark"]));
}

#[test]
fn compressed_files_are_read_whole() {
    let folders = Folders::new();
    let lines = json_lines(&["a".to_owned(), "é🙂".to_owned()]);
    let expected = whole(&["a", "é🙂", "a", "é🙂"]);
    // Two members, two frames.
    let twice = |compressed: Vec<u8>| [compressed.clone(), compressed].concat();
    let gz = folders.file("a.jsonl.gz", twice(gzip(lines.as_bytes())));
    assert_eq!(documents_of(&folders, &[&gz], SplitOn::File), expected);
    let zst = folders.file("a.jsonl.zst", twice(zst(lines.as_bytes())));
    assert_eq!(documents_of(&folders, &[&zst], SplitOn::File), expected);
    let text = folders.file("a.TXT.GZ", gzip(b"one\n\ntwo"));
    assert_eq!(
        documents_of(&folders, &[&text], SplitOn::BlankLine),
        whole(&["one", "two"])
    );
}

#[test]
fn truncated_compressed_files_are_errors() {
    let folders = Folders::new();
    let lines = json_lines(&vec!["some text".to_owned(); 1000]);
    for (name, compressed) in [
        ("a.jsonl.gz", gzip(lines.as_bytes())),
        ("a.jsonl.zst", zst(lines.as_bytes())),
    ] {
        for length in [compressed.len() - 1, compressed.len() / 2, 9] {
            let input = folders.file(name, &compressed[..length]);
            let error = run(&folders.config(&[&input])).unwrap_err();
            assert!(
                matches!(error, PreprocessError::Read { .. }) && error.to_string().contains(name),
                "{error}"
            );
            assert!(folders.names().is_empty());
        }
    }
}

#[test]
fn folders_and_globs_are_sorted() {
    let folders = Folders::new();
    for (name, text) in [
        ("b.txt", "b"),
        ("a/z.txt", "az"),
        ("a/y.md", "not"),
        (".hidden/x.txt", "not"),
        ("c.txt", "c"),
    ] {
        folders.file(name, text);
    }
    let folder = folders.input.path().to_str().unwrap();
    assert_eq!(
        documents_of(&folders, &[folder], SplitOn::File),
        whole(&["az", "b", "c"])
    );
    let glob = format!("{folder}/?.txt");
    let first = format!("{folder}/c.txt");
    assert_eq!(
        documents_of(&folders, &[&first, &glob], SplitOn::File),
        whole(&["c", "b", "c"])
    );
}

#[test]
fn inputs_that_cannot_be_read_are_named() {
    let folders = Folders::new();
    let error = |inputs: &[&str]| run(&folders.config(inputs)).unwrap_err().to_string();
    assert!(error(&["no/such.txt"]).starts_with("cannot read no/such.txt: "));
    assert_eq!(error(&["no/*.txt"]), "no file matches \"no/*.txt\"");
    assert!(error(&[]).starts_with("no input file in []"));
    let unknown = folders.file("a.md", "");
    assert!(
        error(&[&unknown]).contains("a.md does not tell what it holds"),
        "{}",
        error(&[&unknown])
    );
    let folder = folders.input.path().to_str().unwrap();
    assert!(error(&[folder]).starts_with("no input file in the folder"));
    let json = folders.file("b.txt", "{\"text\": \"a\"}\n");
    assert!(
        error(&[&json]).contains("b.txt is named as plain text, but begins with a JSON object"),
        "{}",
        error(&[&json])
    );
    let mut config = folders.config(&[&json]);
    config.format = Some(InputFormat::Jsonl);
    run(&config).unwrap();
    assert_eq!(folders.documents("text_document"), whole(&["a"]));
    config.keys.push("title".to_owned());
    config.format = Some(InputFormat::Text);
    assert!(
        run(&config)
            .unwrap_err()
            .to_string()
            .contains("is plain text, which has no keys text, title")
    );
}

#[cfg(feature = "parquet")]
mod parquet {
    use std::sync::Arc;

    use ::parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use ::parquet::file::properties::WriterProperties;
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;

    use super::*;

    /// A file with a required title, an optional text and a number, in row groups of 100 rows.
    fn file(folders: &Folders, texts: &[Option<&[u8]>]) -> String {
        let schema = "message m { required binary title (UTF8); optional binary text (UTF8); required int64 n; }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = WriterProperties::builder()
            .set_compression(::parquet::basic::Compression::SNAPPY)
            .build();
        let mut writer = SerializedFileWriter::new(vec![], schema, Arc::new(properties)).unwrap();
        for rows in texts.chunks(100) {
            let titles: Vec<ByteArray> = rows.iter().map(|_| ByteArray::from("t")).collect();
            let levels: Vec<i16> = rows.iter().map(|text| text.is_some().into()).collect();
            let values: Vec<ByteArray> = rows
                .iter()
                .flatten()
                .map(|text| ByteArray::from(text.to_vec()))
                .collect();
            let numbers: Vec<i64> = vec![5; rows.len()];
            let mut group = writer.next_row_group().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            column
                .typed::<ByteArrayType>()
                .write_batch(&titles, None, None)
                .unwrap();
            column.close().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            column
                .typed::<ByteArrayType>()
                .write_batch(&values, Some(&levels), None)
                .unwrap();
            column.close().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&numbers, None, None).unwrap();
            column.close().unwrap();
            group.close().unwrap();
        }
        folders.file("a.parquet", writer.into_inner().unwrap())
    }

    #[test]
    fn columns_are_documents() {
        let folders = Folders::new();
        let texts: Vec<String> = (0..250).map(|row| format!("row {row}").repeat(row % 3)).collect();
        let values: Vec<Option<&[u8]>> = texts.iter().map(|text| Some(text.as_bytes())).collect();
        let input = file(&folders, &values);
        let config = PreprocessConfig {
            keys: vec!["text".to_owned(), "title".to_owned()],
            ..folders.config(&[&input])
        };
        let summary = run(&config).unwrap();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        assert_eq!(folders.documents("text_document"), whole(&texts));
        assert_eq!(folders.documents("title_document"), whole(&["t"; 250]));
        assert_eq!(summary.progress.bytes_read, fs::metadata(input).unwrap().len());
    }

    #[test]
    fn bad_rows_and_columns_are_named() {
        let folders = Folders::new();
        let input = file(&folders, &[Some(b"a"), None, Some(b"\xFF"), Some(b"b")]);
        let mut config = folders.config(&[&input]);
        check_error(&config, "a.parquet, row 2: column \"text\" is null");
        config.skip_bad = true;
        let summary = run(&config).unwrap();
        assert_eq!(folders.documents("text_document"), whole(&["a", "b"]));
        assert_eq!(summary.progress.bad_documents, 2);
        assert!(
            summary.first_bad[1]
                .to_string()
                .ends_with("row 3: not UTF-8 at byte 1 of the text")
        );
        config.keys = vec!["body".to_owned()];
        check_error(&config, "no column \"body\", there are title, text, n");
        config.keys = vec!["n".to_owned()];
        assert!(
            run(&config)
                .unwrap_err()
                .to_string()
                .contains("column \"n\" holds no text")
        );
        let cut = fs::read(&input).unwrap();
        let cut = folders.file("cut.parquet", &cut[..cut.len() / 2]);
        assert!(
            run(&folders.config(&[&cut]))
                .unwrap_err()
                .to_string()
                .contains("cut.parquet")
        );
    }
}
