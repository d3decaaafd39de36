use std::sync::Mutex;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::*;

/// Answers in their order, and what was asked.
struct Hub {
    answers: Mutex<Vec<Result<HttpResponse, HttpError>>>,
    asked: Mutex<Vec<(Method, String)>>,
}

impl Http for Hub {
    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, HttpError>> {
        self.asked.lock().unwrap().push((request.method, request.url));
        let answer = self.answers.lock().unwrap().remove(0);
        async { answer }.boxed()
    }
}

type Pieces = Vec<Result<Vec<u8>, HttpError>>;

fn response(status: u16, pieces: Pieces) -> HttpResponse {
    let length = pieces.iter().flatten().map(|piece| piece.len() as u64).sum();
    let body = futures_util::stream::iter(pieces).boxed();
    let (content_type, retry_after, location) = (None, None, None);
    HttpResponse { status, content_type, retry_after, location, length: Some(length), body }
}

fn sent_on(to: &str) -> HttpResponse {
    HttpResponse { location: Some(to.to_owned()), ..response(302, vec![]) }
}

fn hub(answers: Vec<HttpResponse>) -> Hub {
    let answers = Mutex::new(answers.into_iter().map(Ok).collect());
    Hub { answers, asked: Mutex::default() }
}

const MODEL: &[u8] = b"the bytes of a model";

fn order() -> Order {
    let sha256 = Sha256::digest(MODEL).iter().map(|byte| format!("{byte:02x}")).collect();
    Order { url: "http://hub/repo/a.gguf".to_owned(), sha256 }
}

async fn run(hub: &Hub, shelf: &Shelf) -> Result<PathBuf, FetchError> {
    fetch_from(hub, shelf, &order(), &mut |_| {}).await
}

#[tokio::test]
async fn a_download_follows_the_hub_and_is_gone_on_with_where_it_broke() {
    let state = tempfile::tempdir().unwrap();
    let shelf = Shelf::of(state.path());
    let cut = Err(HttpError::Cut("reset".to_owned()));
    let first = hub(vec![sent_on("/else/x"), response(200, vec![Ok(MODEL[..9].to_vec()), cut])]);
    assert!(matches!(run(&first, &shelf).await, Err(FetchError::Network(_))));
    assert_eq!(shelf.in_use(), None, "half a model is none");
    assert_eq!(first.asked.lock().unwrap()[1], (Method::Get, "http://hub/else/x".to_owned()));

    let second = hub(vec![response(206, vec![Ok(MODEL[9..].to_vec())])]);
    let path = run(&second, &shelf).await.unwrap();
    assert_eq!(second.asked.lock().unwrap()[0].0, Method::GetFrom(9));
    assert_eq!(fs::read(&path).unwrap(), MODEL);
    assert_eq!(shelf.in_use(), Some(path));
}

#[tokio::test]
async fn a_server_that_sends_all_again_is_taken_at_its_word() {
    let state = tempfile::tempdir().unwrap();
    let shelf = Shelf::of(state.path());
    fs::create_dir_all(&shelf.directory).unwrap();
    fs::write(shelf.directory.join("a.part"), b"rubbish").unwrap();
    let path = run(&hub(vec![response(200, vec![Ok(MODEL.to_vec())])]), &shelf).await.unwrap();
    assert_eq!(fs::read(path).unwrap(), MODEL);
    fs::remove_file(shelf.path("a").unwrap()).unwrap();
    fs::write(shelf.directory.join("a.part"), MODEL).unwrap();
    assert!(run(&hub(vec![response(416, vec![])]), &shelf).await.is_ok(), "all was here");
}

#[tokio::test]
async fn a_wrong_file_is_thrown_away_and_other_answers_are_no_file() {
    let state = tempfile::tempdir().unwrap();
    let shelf = Shelf::of(state.path());
    let wrong = run(&hub(vec![response(200, vec![Ok(b"a page".to_vec())])]), &shelf).await;
    assert!(matches!(wrong, Err(FetchError::WrongFile(_))));
    assert_eq!(fs::read_dir(&shelf.directory).unwrap().count(), 0);
    let missing = run(&hub(vec![response(404, vec![])]), &shelf).await;
    assert!(matches!(missing, Err(FetchError::Status(404, _))));
    let circle = run(&hub((0..6).map(|_| sent_on("http://hub/a.gguf")).collect()), &shelf).await;
    assert!(matches!(circle, Err(FetchError::Network(HttpError::Malformed(_)))));
    let order = Order { url: "http://hub/page".to_owned(), ..order() };
    let no_name = fetch_from(&hub(vec![]), &shelf, &order, &mut |_| {}).await;
    assert!(matches!(no_name, Err(FetchError::NoName(_))));
}

#[tokio::test]
async fn what_is_here_is_not_fetched_again_unless_it_is_damaged() {
    let state = tempfile::tempdir().unwrap();
    let shelf = Shelf::of(state.path());
    let path = run(&hub(vec![response(200, vec![Ok(MODEL.to_vec())])]), &shelf).await.unwrap();
    assert_eq!(run(&hub(vec![]), &shelf).await.unwrap(), path, "nobody was asked");
    fs::write(&path, &MODEL[..5]).unwrap();
    run(&hub(vec![response(200, vec![Ok(MODEL.to_vec())])]), &shelf).await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), MODEL);
}

#[tokio::test]
async fn two_who_fetch_do_not_write_into_each_others_file() {
    let state = tempfile::tempdir().unwrap();
    let shelf = Shelf::of(state.path());
    let held = Part::take(&shelf, &shelf.path("a").unwrap()).unwrap();
    assert!(matches!(run(&hub(vec![]), &shelf).await, Err(FetchError::Underway)));
    drop(held);
    assert!(run(&hub(vec![response(200, vec![Ok(MODEL.to_vec())])]), &shelf).await.is_ok());
}

#[tokio::test]
async fn what_cannot_be_written_is_said_with_its_place() {
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join("models"), b"a file where the directory should be").unwrap();
    let error = run(&hub(vec![]), &Shelf::of(state.path())).await.unwrap_err();
    assert!(error.to_string().contains("a.part"), "{error}");
}

#[test]
fn nothing_is_begun_without_room() {
    let state = tempfile::tempdir().unwrap();
    assert!(room_for(state.path(), 0).is_ok());
    assert!(matches!(room_for(state.path(), u64::MAX / 2), Err(FetchError::NoRoom { .. })));
}

#[test]
fn a_location_may_leave_out_the_server() {
    for (url, to, want) in [
        ("https://a/b/c", "/d", "https://a/d"),
        ("https://a/b/c", "http://e/f", "http://e/f"),
        ("https://a", "d", "https://a/d"),
    ] {
        assert_eq!(joined(url, to), want);
    }
}
