"""Each file format, from a small file as its publisher writes it."""

import gzip

import numpy as np
import pytest

from esd.data import open_data
from esd.data.hashing import derived_ids, field_key, hash_bytes
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument

CRITEO = (
    "0\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2\t68fd1e64\t80e26c9b\tfb936136\t7b4723c4\t25c83c98\t7e0ccccf\tde7995b8"
    "\t1f89b562\ta73ee510\ta8cd5504\tb2cb9c98\t37c9c164\t2824a5f6\t1adce6ef\t8ba8b39a\t891b62e7\te5ba7672\tf54016b9"
    "\t21ddcdc9\tb1252a9d\t07b5194c\t\t3a171ecb\tc5c50484\te8b83407\t9727dd16\n"
    "1\t\t-1\t\t\t16597\t557\t3\t5\t123\t\t1\t\t\t8cf07265\t7cd19acc\t77f2f2e5\td16679b9\t4cf72387\tfbad5c96\t8fb24933"
    "\t0b153874\ta73ee510\t0095a535\t3617b5f5\t9f32b866\t428332cf\tb28479f6\t83ebd498\t31ca40b6\te5ba7672\td0e5eb07"
    "\t\t\tdfcfc3fa\tad3062eb\t32c7478e\taee52b6f\t\t\n"
)
AVAZU = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,"
    "device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21\n"
    "1000009418151094273,0,14102100,1005,0,1fbe01fe,f3845767,28905ebd,ecad2386,7801e8d9,07d7df22,a99f214a,ddd2926e,"
    "44956a24,1,2,15706,320,50,1722,0,35,-1,79\n"
    "10000169349117863715,1,14102117,1005,0,1fbe01fe,f3845767,28905ebd,ecad2386,7801e8d9,07d7df22,a99f214a,96809ac8,"
    "711ee120,1,0,15704,320,50,1722,0,35,100084,79\n"
)
SEARCH = (
    "0\t-1.0\t-1\t1598918400\t-1\t0.0\t-1\t7E56C27BFF0305E788DA55A029EC4988\t-1\t-1\t-1\t-1\t-1\t-1\t-1\t-1\t-1\t-1\t"
    "57A1D462A03BD076E029CF9310C11FC5\tA66DB02AC1726A8D79C518B7F7AB79F0\t-1\tE3DDEB04F8AFF944B11943BB57D2F620\t"
    "493CFB4A87C50804C94C0CF76ABD19CD\n"
    "1\t20.5\t3600\t1598961600\t7\t19.99\t-1\tD7D1FB49049702BF6338894757E0D959\t-1\t-1\t-1\t-1\t-1\t-1\t-1\t-1\t-1\t-1\t"
    "57A1D462A03BD076E029CF9310C11FC5\t0A0A\ttitle words here\tE3DDEB04F8AFF944B11943BB57D2F620\tAABB\n"
)
RATINGS_CSV = "userId,movieId,rating,timestamp\n1,296,5.0,1147880044\n1,306,3.5,1147868817\n2,296,4.0,1141415820\n"
RATINGS_DAT = "1::296::5::1147880044\n1::306::3::1147868817\n2::296::4::1141415820\n"


def names(dataset):
    return [feature.name for feature in dataset.features]


def id_of(field, value):
    return hash_bytes(field_key(field), value.encode())


def read(tmp_path, reader, text, file_name="data.txt", packed=False, batch_size=100):
    content = text.encode()
    (tmp_path / file_name).write_bytes(gzip.compress(content) if packed else content)
    dataset = open_data(f"{reader}:{file_name}", batch_size, seed=0, data_dir=tmp_path)
    samples = SampleBatch.concatenate(list(dataset))
    samples.check_numbers()
    samples.check_shape(dataset.features, len(dataset.dense_features), len(dataset.labels))
    return dataset, samples


def test_criteo(tmp_path):
    dataset, samples = read(tmp_path, "criteo", CRITEO)
    assert names(dataset) == [f"C{i}" for i in range(1, 27)]
    assert dataset.dense_features == tuple(f"I{i}" for i in range(1, 14))
    assert samples.labels[:, 0].tolist() == [0, 1]
    assert samples.by_field[0, 0] == id_of("C1", "68fd1e64")
    assert samples.by_field[0, 21] == id_of("C22", "")  # blank
    assert samples.by_field[0, 25] == id_of("C26", "9727dd16")
    assert samples.by_field[0, 8] == samples.by_field[1, 8]
    expected = np.log1p([1, 1, 5, 0, 1382, 4, 15, 2, 181, 1, 2, 0, 2]).astype(np.float32)
    assert samples.dense[0].tolist() == expected.tolist()
    assert samples.dense[1, :4].tolist() == [0, 0, 0, 0]  # blank, -1, blank, blank


def test_avazu(tmp_path):
    dataset, samples = read(tmp_path, "avazu", AVAZU)
    assert (len(names(dataset)), dataset.dense_features) == (22, ())
    assert samples.labels[:, 0].tolist() == [0, 1]
    assert samples.by_field[:, 0].tolist() == derived_ids("hour of the day", np.array([0, 17])).tolist()
    assert samples.by_field[0, 1] == id_of("C1", "1005")
    assert samples.by_field[1, -2] == id_of("C20", "100084")
    assert samples.by_field[1, -1] == id_of("C21", "79")


def test_criteo_search(tmp_path):
    dataset, samples = read(tmp_path, "criteo-search", SEARCH)
    assert len(names(dataset)) == 17
    assert dataset.dense_features == ("nb_clicks_1week", "time of day, sine", "time of day, cosine")
    assert samples.labels[:, 0].tolist() == [0, 1]
    np.testing.assert_allclose(samples.dense, [[0, 0, 1], [np.log1p(7), 0, -1]], rtol=1e-6, atol=1e-6)
    assert samples.by_field[1, names(dataset).index("product_title")] == id_of("product_title", "title words here")
    assert samples.by_field[1, names(dataset).index("user_id")] == id_of("user_id", "AABB")


@pytest.mark.parametrize(("file_name", "text"), [("ratings.csv", RATINGS_CSV), ("ratings.dat", RATINGS_DAT)])
def test_movielens(tmp_path, file_name, text):
    dataset, samples = read(tmp_path, "movielens", text, file_name)
    assert names(dataset) == ["userId", "movieId"]
    assert samples.dense.shape == (3, 0)
    assert samples.labels[:, 0].tolist() == [1, 0, 1]
    users = [id_of("userId", "1"), id_of("userId", "1"), id_of("userId", "2")]
    assert samples.by_field.tolist() == [
        [u, id_of("movieId", m)] for u, m in zip(users, ["296", "306", "296"], strict=True)
    ]


@pytest.mark.parametrize(
    "variant",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.removesuffix("\n"),
        lambda text: "\ufeff" + text,  # byte order mark
        lambda text: text.replace("1fbe01fe", '"1fbe01fe"').replace("click", '"click"'),
    ],
    ids=["crlf", "no last newline", "byte order mark", "quotes"],
)
def test_variants_of_csv_give_the_same_samples(tmp_path, variant):
    _, plain = read(tmp_path, "avazu", AVAZU)
    _, other = read(tmp_path, "avazu", variant(AVAZU))
    assert plain.by_field.tolist() == other.by_field.tolist()
    assert plain.labels[:, 0].tolist() == other.labels[:, 0].tolist()


def test_gzip_gives_the_same_samples(tmp_path):
    _, plain = read(tmp_path, "criteo", CRITEO)
    _, packed = read(tmp_path, "criteo", CRITEO, "train.gz", packed=True)
    assert plain.by_field.tolist() == packed.by_field.tolist()


def test_batches_are_bounded_and_iteration_starts_again(tmp_path):
    dataset, samples = read(tmp_path, "criteo", CRITEO * 50, batch_size=7)
    sizes = [len(batch) for batch in dataset]
    assert sum(sizes) == 100
    assert set(sizes) == {7, 2}
    again = SampleBatch.concatenate(list(dataset))
    assert again.by_field.tolist() == samples.by_field.tolist()


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("flight", "data 'flight' is unknown; there are flights, journey, criteo, avazu"),
        ("flights:x", "data 'flights' takes nothing behind its name, found 'x'"),
        ("criteo", "data 'criteo' names no file, write criteo:PATH"),
        ("criteo:", "names no file"),
        ("criteo:a,,b", "data files 'a,,b' have an empty name before or after a comma"),
    ],
)
def test_unusable_names_are_refused(tmp_path, uri, message):
    with pytest.raises(InvalidArgument, match=message):
        open_data(uri, 10, seed=0, data_dir=tmp_path)


def test_absent_file_is_refused_at_once(tmp_path):
    with pytest.raises(InvalidArgument, match=r"data file .*/none does not exist"):
        open_data("avazu:none", 10, seed=0, data_dir=tmp_path)


@pytest.mark.parametrize(
    ("batch_size", "skip_bad", "message"), [(0, 0, "batch_size is 0"), (1, -1, "--skip-bad is -1")]
)
def test_impossible_limits_are_refused(batch_size, skip_bad, message):
    with pytest.raises(InvalidArgument, match=message):
        open_data("flights", batch_size, seed=0, skip_bad=skip_bad)
