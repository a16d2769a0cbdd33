"""C-MTEB, and English data sets in mteb's classes, on local files.

These are mteb's version 1 tasks, like those in ReBA's tables. A data set that is not part of C-MTEB has a name that
mteb does not use. docs/evaluate.md describes the format of each file.
"""

from __future__ import annotations

from .mteb_categories import Classification, Clustering, PairClassification, Reranking, Retrieval, Similarity
from .mteb_local import MtebTask


class ChineseSimilarity(Similarity):
    """STS of C-MTEB."""

    group, languages = "zh-sts", ("cmn-Hans",)


class ChinesePairs(PairClassification):
    """Pair classification of C-MTEB."""

    group, languages = "zh-pair", ("cmn-Hans",)


class ChineseClassification(Classification):
    """Classification of C-MTEB."""

    group, languages = "zh-classification", ("cmn-Hans",)


class ChineseClustering(Clustering):
    """Clustering of C-MTEB."""

    group, languages = "zh-clustering", ("cmn-Hans",)


class ChineseReranking(Reranking):
    """Reranking of C-MTEB."""

    group, languages = "zh-reranking", ("cmn-Hans",)


class ChineseRetrieval(Retrieval):
    """Retrieval of C-MTEB."""

    group, languages = "zh-retrieval", ("cmn-Hans",)


class EnglishSimilarity(Similarity):
    """English STS with mteb's protocol; `tasks.sts` has SentEval's."""

    group = "mteb-sts"


class EnglishClustering(Clustering):
    """English clustering, on freely licensed data sets that mteb does not have."""

    group = "mteb-clustering"


class EnglishRetrieval(Retrieval):
    """English retrieval."""

    group = "mteb-retrieval"


TASKS: tuple[MtebTask, ...] = (
    ChineseSimilarity("ATEC", "zh/sts/atec.test", "ATEC"),
    ChineseSimilarity("BQ", "zh/sts/bq.test", "BQ"),
    ChineseSimilarity("LCQMC", "zh/sts/lcqmc.test", "LCQMC"),
    ChineseSimilarity("PAWSX", "zh/sts/pawsx.test", "PAWSX"),
    ChineseSimilarity("STSB-zh", "zh/sts/stsb.test", "STSB"),
    ChineseSimilarity("AFQMC", "zh/sts/afqmc.dev", "AFQMC", "validation"),
    ChineseSimilarity("QBQTC", "zh/sts/qbqtc.test", "QBQTC"),
    ChinesePairs("Ocnli", "zh/pair/ocnli.dev", "Ocnli", "validation"),
    ChinesePairs("Cmnli", "zh/pair/cmnli.dev", "Cmnli", "validation"),
    ChineseClassification("TNews", "zh/classification/tnews", "TNews", "validation"),
    ChineseClassification("IFlyTek", "zh/classification/iflytek", "IFlyTek", "validation"),
    ChineseClassification(
        "MultilingualSentiment", "zh/classification/multilingualsentiment", "MultilingualSentiment"
    ),
    ChineseClassification("Waimai", "zh/classification/waimai", "Waimai"),
    ChineseClassification("OnlineShopping", "zh/classification/onlineshopping", "OnlineShopping"),
    ChineseClassification("EPRSTMT", "zh/classification/eprstmt"),  # stands in for JDReview
    ChineseClustering("CLSClusteringS2S", "zh/clustering/clsclustering_s2s", "CLSClusteringS2S"),
    ChineseClustering("CLSClusteringP2P", "zh/clustering/clsclustering_p2p", "CLSClusteringP2P"),
    ChineseClustering("ThuNewsClusteringS2S", "zh/clustering/thunews_s2s", "ThuNewsClusteringS2S"),
    ChineseReranking("DuReaderDemoReranking", "zh/reranking/dureader_demo"),  # for T2Reranking, MMarcoReranking
    ChineseRetrieval("CmrcRetrieval", "zh/retrieval/cmrc2018"),
    ChineseRetrieval("CEpilepsyQARetrieval", "zh/retrieval/cepilepsyqa"),  # for CmedqaRetrieval
    ChineseRetrieval("ChineseMedicalDialogueRetrieval", "zh/retrieval/cmedicaldialogue"),  # for MedicalRetrieval
    *(EnglishSimilarity(f"mteb-STS{year}", f"en/sts/sts{year}.test", f"STS{year}") for year in range(12, 17)),
    EnglishSimilarity("mteb-STSBenchmark", "en/sts/stsb.test", "STSBenchmark"),
    EnglishSimilarity("mteb-SICK-R", "en/sts/sickr.test", "SICK-R"),
    EnglishClustering("AgNewsClustering", "en/clustering/agnews"),
    EnglishClustering("GoogleNewsTitlesClustering", "en/clustering/googlenews_titles"),
    EnglishClustering("NewsgroupSubjectsClustering", "en/clustering/newsgroups20_subjects"),
    EnglishClustering("SearchSnippetsClustering", "en/clustering/searchsnippets"),
    EnglishClustering("StackOverflowTitlesClustering", "en/clustering/stackoverflow"),
    EnglishClustering("TweetTopicsClustering", "en/clustering/tweet"),
    EnglishRetrieval("SciFact", "en/retrieval/scifact", "SciFact", identifier="id", document="doc"),
)  # fmt: skip
"""All local tasks of mteb; a comment names the data set that a substitute replaces."""
